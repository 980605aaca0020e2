// The kernels, compiled for the CPU, by their names. What includes this is compiled with -ffp-contract=off.
#pragma once
#include "language.h"

#include "../cuda/kernels.cu"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#include <type_traits>
#include <vector>

namespace kernels {

// A parameter: how many bytes, and whether it is a pointer by itself.
struct Parameter {
  size_t bytes;
  bool pointer;
};

struct Kernel {
  const char *name;
  void (*function)();
  void (*entry)(void *);
  std::vector<Parameter> parameters;
};

struct Call {
  void (*function)();
  void **arguments;
};

template <class... A, size_t... I> void call(void (*function)(A...), void **arguments, std::index_sequence<I...>) {
  function(*(A *)arguments[I]...);
}

template <class... A> void enter(void *made) {
  const Call *given = (const Call *)made;
  call((void (*)(A...))given->function, given->arguments, std::index_sequence_for<A...>{});
}

template <class... A> Kernel kernel(const char *name, void (*function)(A...)) {
  return {name, (void (*)())function, enter<A...>, {Parameter{sizeof(A), std::is_pointer<A>::value}...}};
}

inline const std::vector<Kernel> &all() {
#define NAMED(function) kernel(#function, function)
  static const std::vector<Kernel> all = {
      NAMED(embed), NAMED(norm_qkv), NAMED(rope_attend), NAMED(project_add),
      NAMED(norm_gate_up), NAMED(norm_head), NAMED(choose), NAMED(prepare),
      NAMED(batch_project), NAMED(batch_gate), NAMED(rope_append), NAMED(attend),
      NAMED(attend_scores), NAMED(attend_weights), NAMED(attend_mix),
      NAMED(dormouse_begin), NAMED(dormouse_rows), NAMED(dormouse_quantise), NAMED(dormouse_read),
      NAMED(dormouse_mix), NAMED(dormouse_recur), NAMED(dormouse_gate), NAMED(dormouse_write),
      NAMED(dormouse_mean)};
#undef NAMED
  return all;
}

inline const Kernel *find(const char *name) {
  for (const Kernel &kernel : all())
    if (!strcmp(kernel.name, name)) return &kernel;
  return nullptr;
}

// As `cuLaunchKernel`: each of `arguments` points to one.
inline void launch(const Kernel &kernel, machine::Index grid, machine::Index block, size_t shared, void **arguments) {
  Call made{kernel.function, arguments};
  machine::launch(kernel.name, kernel.entry, &made, grid, block, shared);
}

} // namespace kernels
