//! The kernels on a CPU: every thread a fiber, launched as a GPU would be, against the runtime, bit for bit.
//!
//! It takes a C++ compiler (`c++`, or what `CXX` names).

mod decoder;
mod device;
mod dormouse;
mod equality;
mod faults;
mod long;
mod models;
