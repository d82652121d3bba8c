//! Converts refusals and errors of keys, leases and locks into the [`Refused`] that all protocols report.

use dunlin_control::ControlRefusal;
use dunlin_wire::ErrorCode as Code;

use super::ControlError;
use crate::refusal::Refused;

impl From<&ControlRefusal> for Refused {
    fn from(refusal: &ControlRefusal) -> Refused {
        let of = |code, numbers| Refused { numbers, ..Refused::new(code, "") };
        let named = |code, numbers, name: &str| Refused { numbers, ..Refused::new(code, name) };
        match *refusal {
            ControlRefusal::KeyTooLong { bytes, bytes_max } => {
                named(Code::KeyTooLarge, [bytes, bytes_max, 0], "key_bytes_max")
            }
            ControlRefusal::ValueTooLong { bytes, bytes_max } => {
                named(Code::KeyTooLarge, [bytes, bytes_max, 0], "value_bytes_max")
            }
            ControlRefusal::TooManyOperations { count, count_max } => {
                named(Code::KeyTooLarge, [count, count_max, 0], "operations_max")
            }
            ControlRefusal::Mismatch { modified } => of(Code::KeyMoved, [modified, 0, 0]),
            ControlRefusal::NoLease { lease } => of(Code::NoLease, [lease, 0, 0]),
            ControlRefusal::TooManyLeases { count_max } => Refused::limit("leases_max", count_max),
            ControlRefusal::TooManyLeasesOfUser { count_max } => {
                Refused::limit("leases_of_user_max", count_max)
            }
            ControlRefusal::TooManyLeasesOfTenant { count_max } => {
                Refused::limit("leases_of_tenant_max", count_max)
            }
            ControlRefusal::TooManyWaiters { count_max } => Refused::limit("waiters_max", count_max),
            ControlRefusal::TooManyReads { bytes_max } => Refused::limit("entry_read_bytes_max", bytes_max),
            ControlRefusal::Held { holder, token } => of(Code::LockHeld, [holder, token, 0]),
            ControlRefusal::NotHeld { lease } => of(Code::LockNotHeld, [lease, 0, 0]),
            ControlRefusal::NoRoom { bytes, bytes_max } | ControlRefusal::NoShare { bytes, bytes_max } => {
                named(Code::NoRoom, [bytes, bytes_max, 0], &refusal.to_string())
            }
            ControlRefusal::NoNode { .. } => Refused::new(Code::TopicConfig, refusal.to_string()),
            ControlRefusal::NoTopic => of(Code::NoTopic, [0; 3]),
            _ => Refused::new(Code::BadKey, refusal.to_string()),
        }
    }
}

impl From<&ControlError> for Refused {
    fn from(error: &ControlError) -> Refused {
        match error {
            ControlError::Refused(refusal) => refusal.into(),
            ControlError::NoLeader { waited_ms, why } => {
                Refused { numbers: [*waited_ms, 0, 0], ..Refused::new(Code::NoLeader, why.as_str()) }
            }
            ControlError::Unknown => Refused::new(Code::CommandUnknown, ""),
            ControlError::Busy { waiting_max } => Refused::limit("waiting_max", *waiting_max as u64),
            ControlError::BusyBytes { waiting_bytes_max } => {
                Refused::limit("waiting_bytes_max", *waiting_bytes_max as u64)
            }
            ControlError::DiskFull(why) => Refused::new(Code::DiskFull, why.as_str()),
            ControlError::LacksResource(_) => Refused::new(Code::Limit, error.to_string()),
            ControlError::TooLarge { bytes, bytes_max } => Refused {
                numbers: [*bytes as u64, *bytes_max as u64, 0],
                ..Refused::new(Code::KeyTooLarge, "command_bytes_max")
            },
            ControlError::Malformed(error) => Refused::new(Code::Protocol, error.to_string()),
            ControlError::Members(why) => Refused::new(Code::BadKey, why.as_str()),
            ControlError::Stopped(why) | ControlError::Start(why) => {
                Refused::new(Code::NoControl, why.as_str())
            }
        }
    }
}
