//! Implements the generated traits of the services.
//!
//! A method of such a trait borrows its service, so the compiler would prove for each method anew that everything the
//! service refers to is [`Send`] and [`Sync`]. The inherent functions own their service, so the compiler proves it
//! once. Without this, checking the crate takes twice as long.

/// Implements the trait of a gRPC service. Each call runs the inherent function of the same name, which takes the
/// service by value.
macro_rules! calls {
    ($trait:ident for $service:ident {
        $($call:ident($request:ty) -> $response:ty $(as $stream:ident)?;)*
    }) => {
        impl $trait for $service {
            $(
                $(type $stream = $response;)?

                fn $call<'a, 'call>(
                    &'a self,
                    request: tonic::Request<$request>,
                ) -> std::pin::Pin<Box<dyn Future<Output = Result<tonic::Response<$response>, tonic::Status>> + Send + 'call>>
                where
                    'a: 'call,
                {
                    // This is a separate function, because a closure would inherit the lifetimes.
                    fn boxed(
                        service: $service,
                        request: tonic::Request<$request>,
                    ) -> std::pin::Pin<Box<dyn Future<Output = Result<tonic::Response<$response>, tonic::Status>> + Send>> {
                        Box::pin($service::$call(service, request))
                    }
                    boxed(self.clone(), request)
                }
            )*
        }
    };
}
pub(super) use calls;
