//! Host side: the owned header, the writers, and every check there is.
