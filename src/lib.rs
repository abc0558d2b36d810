//! libweir.so
