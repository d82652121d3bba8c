//! Encodes orders for workers.
//!
//! ```text
//!  version u8, then orders one after another; each begins with its kind u8:
//!  1 start    the fields of a start
//!  2 stop     worker u64, task u64, token u64
//!  3 drained  worker u64
//! ```

use crate::effects::{TaskStart, WorkerOrder};
use crate::error::TaskDecodeError;
use crate::layout::{Fields, Layout};

const START: u8 = 1;
const STOP: u8 = 2;
const DRAINED: u8 = 3;

impl<'a> Layout<'a> for WorkerOrder {
    fn read(fields: &mut Fields<'a>) -> Result<WorkerOrder, TaskDecodeError> {
        match u8::read(fields)? {
            START => TaskStart::read(fields).map(WorkerOrder::Start),
            STOP => {
                let (worker, task) = (u64::read(fields)?, u64::read(fields)?);
                Ok(WorkerOrder::Stop { worker, task, token: u64::read(fields)? })
            }
            DRAINED => Ok(WorkerOrder::Drained { worker: u64::read(fields)? }),
            number => Err(TaskDecodeError::Unknown { what: "worker order", number }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            WorkerOrder::Start(start) => {
                out.push(START);
                start.write(out);
            }
            WorkerOrder::Stop { worker, task, token } => {
                out.push(STOP);
                [worker, task, token].into_iter().for_each(|number| number.write(out));
            }
            WorkerOrder::Drained { worker } => {
                out.push(DRAINED);
                worker.write(out);
            }
        }
    }
}

impl WorkerOrder {
    /// Appends the header of a list of orders.
    pub fn begin(out: &mut Vec<u8>) {
        out.push(crate::VERSION);
    }

    /// Appends the order to a list that [`WorkerOrder::begin`] began.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    /// Decodes a list of orders.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<WorkerOrder>, TaskDecodeError> {
        let mut fields = Fields { rest: bytes };
        let version = u8::read(&mut fields)?;
        if version != crate::VERSION {
            return Err(TaskDecodeError::Version(version));
        }
        let mut orders = Vec::new();
        while !fields.rest.is_empty() {
            orders.push(WorkerOrder::read(&mut fields)?);
        }
        Ok(orders)
    }
}
