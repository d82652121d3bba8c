//! The reasons why a command cannot follow a region. To follow a region is to read the region's topic at the node of
//! its owner.

use dunlin_client::{CallError, ConnectError, DisconnectReason};
use dunlin_topic::SubscribeError;
use dunlin_wire::ErrorCode;

/// Why a command cannot follow a region at the node of the region's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowFault {
    /// The node has no topic of the region.
    NoTopic,
    /// The node does not accept the client's credentials, for this reason. The node would refuse the same credentials
    /// again.
    Login(String),
    /// The node refused the request, for this reason.
    Refused(String),
    /// The node cannot be reached.
    Unreachable,
}

impl FollowFault {
    /// Returns the fault that an error means. The error comes from a request to the node, or from a subscription at the
    /// node.
    pub fn of(error: &anyhow::Error) -> FollowFault {
        if let Some(error) = error.downcast_ref::<SubscribeError>() {
            return FollowFault::from_subscribe_error(error);
        }
        if let Some(ConnectError::Disconnected(DisconnectReason::Refused(refused))) =
            error.downcast_ref::<ConnectError>()
        {
            return match refused.code {
                ErrorCode::Unauthenticated => FollowFault::Login(refused.to_string()),
                _ => FollowFault::Refused(refused.to_string()),
            };
        }
        match error.downcast_ref::<CallError>() {
            Some(CallError::Refused(refused)) if refused.code == ErrorCode::NoTopic => FollowFault::NoTopic,
            Some(CallError::Refused(refused)) => FollowFault::Refused(refused.to_string()),
            _ => FollowFault::Unreachable,
        }
    }

    /// Returns the fault that an error of a subscription means.
    pub fn from_subscribe_error(error: &SubscribeError) -> FollowFault {
        match error {
            SubscribeError::NoTopic(_) => FollowFault::NoTopic,
            SubscribeError::Connection(_) | SubscribeError::Closed => FollowFault::Unreachable,
            SubscribeError::Refused(why) => FollowFault::Refused(why.clone()),
            refused => FollowFault::Refused(refused.to_string()),
        }
    }
}
