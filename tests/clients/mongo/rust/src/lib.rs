//! Nothing: the tests and the example are all there is.
