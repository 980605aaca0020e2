// A library of the driver's name with one function in it, as broken installations have it.
extern "C" __attribute__((visibility("default"))) int cuInit(unsigned) { return 0; }
