//! Implements the traits that tonic generates for the gRPC services.
//!
//! A method of such a trait borrows its service, so for each method, the compiler would prove again that everything in
//! the service is [`Send`] and [`Sync`]. The methods therefore call functions that own their service: for these
//! functions, the compiler needs only one proof. This halves the time that `cargo check` takes for the crate.

/// Implements the trait of a gRPC service. Each method calls the service's own function of the same name, which takes
/// the service by value.
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
                    // The future is created in a function of its own, because a closure would capture the lifetimes of
                    // this method.
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
