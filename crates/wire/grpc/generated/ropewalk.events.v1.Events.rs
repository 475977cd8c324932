/// Generated server implementations.
pub mod events_server {
    #![allow(
        unused_variables,
        dead_code,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value,
    )]
    use tonic::codegen::*;
    /// Generated trait containing gRPC methods that should be implemented for use with EventsServer.
    #[async_trait]
    pub trait Events: std::marker::Send + std::marker::Sync + 'static {
        async fn append(
            &self,
            request: tonic::Request<crate::proto::ropewalk::events::v1::AppendRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::proto::ropewalk::events::v1::AppendResponse>,
            tonic::Status,
        >;
        /// Server streaming response type for the Read method.
        type ReadStream: tonic::codegen::tokio_stream::Stream<
                Item = std::result::Result<crate::frame::Frame, tonic::Status>,
            >
            + std::marker::Send
            + 'static;
        async fn read(
            &self,
            request: tonic::Request<crate::proto::ropewalk::events::v1::ReadRequest>,
        ) -> std::result::Result<tonic::Response<Self::ReadStream>, tonic::Status>;
        async fn last(
            &self,
            request: tonic::Request<crate::proto::ropewalk::events::v1::LastRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::proto::ropewalk::events::v1::LastResponse>,
            tonic::Status,
        >;
        async fn count(
            &self,
            request: tonic::Request<crate::proto::ropewalk::events::v1::CountRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::proto::ropewalk::events::v1::CountResponse>,
            tonic::Status,
        >;
        async fn exists(
            &self,
            request: tonic::Request<crate::proto::ropewalk::events::v1::ExistsRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::proto::ropewalk::events::v1::ExistsResponse>,
            tonic::Status,
        >;
        async fn head(
            &self,
            request: tonic::Request<crate::proto::ropewalk::events::v1::HeadRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::proto::ropewalk::events::v1::HeadResponse>,
            tonic::Status,
        >;
        async fn tracking(
            &self,
            request: tonic::Request<crate::proto::ropewalk::events::v1::TrackingRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::proto::ropewalk::events::v1::TrackingResponse>,
            tonic::Status,
        >;
        /// Server streaming response type for the Subscribe method.
        type SubscribeStream: tonic::codegen::tokio_stream::Stream<
                Item = std::result::Result<crate::frame::Frame, tonic::Status>,
            >
            + std::marker::Send
            + 'static;
        async fn subscribe(
            &self,
            request: tonic::Request<crate::proto::ropewalk::events::v1::SubscribeRequest>,
        ) -> std::result::Result<tonic::Response<Self::SubscribeStream>, tonic::Status>;
        async fn list_stores(
            &self,
            request: tonic::Request<
                crate::proto::ropewalk::events::v1::ListStoresRequest,
            >,
        ) -> std::result::Result<
            tonic::Response<crate::proto::ropewalk::events::v1::ListStoresResponse>,
            tonic::Status,
        >;
        async fn create_store(
            &self,
            request: tonic::Request<
                crate::proto::ropewalk::events::v1::CreateStoreRequest,
            >,
        ) -> std::result::Result<
            tonic::Response<crate::proto::ropewalk::events::v1::CreateStoreResponse>,
            tonic::Status,
        >;
        async fn delete_store(
            &self,
            request: tonic::Request<
                crate::proto::ropewalk::events::v1::DeleteStoreRequest,
            >,
        ) -> std::result::Result<
            tonic::Response<crate::proto::ropewalk::events::v1::DeleteStoreResponse>,
            tonic::Status,
        >;
    }
    #[derive(Debug)]
    pub struct EventsServer<T> {
        inner: Arc<T>,
        accept_compression_encodings: EnabledCompressionEncodings,
        send_compression_encodings: EnabledCompressionEncodings,
        max_decoding_message_size: Option<usize>,
        max_encoding_message_size: Option<usize>,
    }
    impl<T> EventsServer<T> {
        pub fn new(inner: T) -> Self {
            Self::from_arc(Arc::new(inner))
        }
        pub fn from_arc(inner: Arc<T>) -> Self {
            Self {
                inner,
                accept_compression_encodings: Default::default(),
                send_compression_encodings: Default::default(),
                max_decoding_message_size: None,
                max_encoding_message_size: None,
            }
        }
        pub fn with_interceptor<F>(
            inner: T,
            interceptor: F,
        ) -> InterceptedService<Self, F>
        where
            F: tonic::service::Interceptor,
        {
            InterceptedService::new(Self::new(inner), interceptor)
        }
        /// Enable decompressing requests with the given encoding.
        #[must_use]
        pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.accept_compression_encodings.enable(encoding);
            self
        }
        /// Compress responses with the given encoding, if the client supports it.
        #[must_use]
        pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.send_compression_encodings.enable(encoding);
            self
        }
        /// Limits the maximum size of a decoded message.
        ///
        /// Default: `4MB`
        #[must_use]
        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
            self.max_decoding_message_size = Some(limit);
            self
        }
        /// Limits the maximum size of an encoded message.
        ///
        /// Default: `usize::MAX`
        #[must_use]
        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
            self.max_encoding_message_size = Some(limit);
            self
        }
    }
    impl<T, B> tonic::codegen::Service<http::Request<B>> for EventsServer<T>
    where
        T: Events,
        B: Body + std::marker::Send + 'static,
        B::Error: Into<StdError> + std::marker::Send + 'static,
    {
        type Response = http::Response<tonic::body::Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<Self::Response, Self::Error>;
        fn poll_ready(
            &mut self,
            _cx: &mut Context<'_>,
        ) -> Poll<std::result::Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, req: http::Request<B>) -> Self::Future {
            match req.uri().path() {
                "/ropewalk.events.v1.Events/Append" => {
                    #[allow(non_camel_case_types)]
                    struct AppendSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::UnaryService<
                        crate::proto::ropewalk::events::v1::AppendRequest,
                    > for AppendSvc<T> {
                        type Response = crate::proto::ropewalk::events::v1::AppendResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::AppendRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::append(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = AppendSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/Read" => {
                    #[allow(non_camel_case_types)]
                    struct ReadSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::ServerStreamingService<
                        crate::proto::ropewalk::events::v1::ReadRequest,
                    > for ReadSvc<T> {
                        type Response = crate::frame::Frame;
                        type ResponseStream = T::ReadStream;
                        type Future = BoxFuture<
                            tonic::Response<Self::ResponseStream>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::ReadRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::read(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ReadSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.server_streaming(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/Last" => {
                    #[allow(non_camel_case_types)]
                    struct LastSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::UnaryService<
                        crate::proto::ropewalk::events::v1::LastRequest,
                    > for LastSvc<T> {
                        type Response = crate::proto::ropewalk::events::v1::LastResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::LastRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::last(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = LastSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/Count" => {
                    #[allow(non_camel_case_types)]
                    struct CountSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::UnaryService<
                        crate::proto::ropewalk::events::v1::CountRequest,
                    > for CountSvc<T> {
                        type Response = crate::proto::ropewalk::events::v1::CountResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::CountRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::count(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = CountSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/Exists" => {
                    #[allow(non_camel_case_types)]
                    struct ExistsSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::UnaryService<
                        crate::proto::ropewalk::events::v1::ExistsRequest,
                    > for ExistsSvc<T> {
                        type Response = crate::proto::ropewalk::events::v1::ExistsResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::ExistsRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::exists(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ExistsSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/Head" => {
                    #[allow(non_camel_case_types)]
                    struct HeadSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::UnaryService<
                        crate::proto::ropewalk::events::v1::HeadRequest,
                    > for HeadSvc<T> {
                        type Response = crate::proto::ropewalk::events::v1::HeadResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::HeadRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::head(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = HeadSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/Tracking" => {
                    #[allow(non_camel_case_types)]
                    struct TrackingSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::UnaryService<
                        crate::proto::ropewalk::events::v1::TrackingRequest,
                    > for TrackingSvc<T> {
                        type Response = crate::proto::ropewalk::events::v1::TrackingResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::TrackingRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::tracking(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = TrackingSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/Subscribe" => {
                    #[allow(non_camel_case_types)]
                    struct SubscribeSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::ServerStreamingService<
                        crate::proto::ropewalk::events::v1::SubscribeRequest,
                    > for SubscribeSvc<T> {
                        type Response = crate::frame::Frame;
                        type ResponseStream = T::SubscribeStream;
                        type Future = BoxFuture<
                            tonic::Response<Self::ResponseStream>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::SubscribeRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::subscribe(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = SubscribeSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.server_streaming(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/ListStores" => {
                    #[allow(non_camel_case_types)]
                    struct ListStoresSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::UnaryService<
                        crate::proto::ropewalk::events::v1::ListStoresRequest,
                    > for ListStoresSvc<T> {
                        type Response = crate::proto::ropewalk::events::v1::ListStoresResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::ListStoresRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::list_stores(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ListStoresSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/CreateStore" => {
                    #[allow(non_camel_case_types)]
                    struct CreateStoreSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::UnaryService<
                        crate::proto::ropewalk::events::v1::CreateStoreRequest,
                    > for CreateStoreSvc<T> {
                        type Response = crate::proto::ropewalk::events::v1::CreateStoreResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::CreateStoreRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::create_store(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = CreateStoreSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/ropewalk.events.v1.Events/DeleteStore" => {
                    #[allow(non_camel_case_types)]
                    struct DeleteStoreSvc<T: Events>(pub Arc<T>);
                    impl<
                        T: Events,
                    > tonic::server::UnaryService<
                        crate::proto::ropewalk::events::v1::DeleteStoreRequest,
                    > for DeleteStoreSvc<T> {
                        type Response = crate::proto::ropewalk::events::v1::DeleteStoreResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::proto::ropewalk::events::v1::DeleteStoreRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Events>::delete_store(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = DeleteStoreSvc(inner);
                        let codec = crate::frame::Codec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                _ => {
                    Box::pin(async move {
                        let mut response = http::Response::new(
                            tonic::body::Body::default(),
                        );
                        let headers = response.headers_mut();
                        headers
                            .insert(
                                tonic::Status::GRPC_STATUS,
                                (tonic::Code::Unimplemented as i32).into(),
                            );
                        headers
                            .insert(
                                http::header::CONTENT_TYPE,
                                tonic::metadata::GRPC_CONTENT_TYPE,
                            );
                        Ok(response)
                    })
                }
            }
        }
    }
    impl<T> Clone for EventsServer<T> {
        fn clone(&self) -> Self {
            let inner = self.inner.clone();
            Self {
                inner,
                accept_compression_encodings: self.accept_compression_encodings,
                send_compression_encodings: self.send_compression_encodings,
                max_decoding_message_size: self.max_decoding_message_size,
                max_encoding_message_size: self.max_encoding_message_size,
            }
        }
    }
    /// Generated gRPC service name
    pub const SERVICE_NAME: &str = "ropewalk.events.v1.Events";
    impl<T> tonic::server::NamedService for EventsServer<T> {
        const NAME: &'static str = SERVICE_NAME;
    }
}
