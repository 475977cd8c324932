//! The gRPC services over real sockets.
