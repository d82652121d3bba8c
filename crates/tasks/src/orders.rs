//! Encoded orders for workers.
//!
//! ```text
//!  version u8, then orders one after another:
//!  1, a start | 2, worker u64, task u64, token u64: stop | 3, worker u64: drained
//! ```

use crate::effects::{Order, Start};
use crate::error::DecodeError;
use crate::layout::{Fields, Layout};

const START: u8 = 1;
const STOP: u8 = 2;
const DRAINED: u8 = 3;

impl<'a> Layout<'a> for Order {
    fn read(fields: &mut Fields<'a>) -> Result<Order, DecodeError> {
        match u8::read(fields)? {
            START => Start::read(fields).map(Order::Start),
            STOP => {
                let (worker, task) = (u64::read(fields)?, u64::read(fields)?);
                Ok(Order::Stop { worker, task, token: u64::read(fields)? })
            }
            DRAINED => Ok(Order::Drained { worker: u64::read(fields)? }),
            number => Err(DecodeError::Unknown { what: "worker order", number }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Order::Start(start) => {
                out.push(START);
                start.write(out);
            }
            Order::Stop { worker, task, token } => {
                out.push(STOP);
                [worker, task, token].into_iter().for_each(|number| number.write(out));
            }
            Order::Drained { worker } => {
                out.push(DRAINED);
                worker.write(out);
            }
        }
    }
}

impl Order {
    /// Appends the header of a list of orders.
    pub fn begin(out: &mut Vec<u8>) {
        out.push(crate::VERSION);
    }

    /// Appends the order, behind [`Order::begin`] and other orders.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    /// Decodes a list of orders.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Order>, DecodeError> {
        let mut fields = Fields { rest: bytes };
        let version = u8::read(&mut fields)?;
        if version != crate::VERSION {
            return Err(DecodeError::Version(version));
        }
        let mut orders = Vec::new();
        while !fields.rest.is_empty() {
            orders.push(Order::read(&mut fields)?);
        }
        Ok(orders)
    }
}
