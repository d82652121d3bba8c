//! Counts the repeated elements of a protobuf message while its bytes arrive, before the message is decoded.
//!
//! An empty element takes two bytes in a message, and up to about 270 bytes when it is decoded. The size of a message
//! therefore does not limit the memory that its decoded form takes.
//!
//! Only fields that contain repeated elements are examined. The decoder, prost, skips unknown fields without storing
//! them, so unknown fields do not count.
//!
//! Limit: `grpc.message_elements_max` for each message, including the elements of nested messages.

use dunlin::Refused;
use dunlin::wire::ErrorCode;

use super::dispatch::{DUNLIN, KV, RATATOSKR, TASKS};
use super::proto::dunlin as v1;
use super::proto::ratatoskr;

/// The capacity of a vector of decoded elements may be up to this many times the number of elements.
const GROWTH: usize = 2;

/// The fields of a message that are repeated or contain repeated fields, by their field numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageShape {
    fields: &'static [(u32, Field)],
}

#[derive(Debug, Clone, Copy)]
enum Field {
    /// A field that contains one message, which has repeated fields itself.
    Message(&'static MessageShape),
    /// A repeated field of texts or messages.
    Repeated {
        /// Size of a decoded element without its contents, bytes.
        element_bytes: usize,
        shape: &'static MessageShape,
    },
    /// A repeated field of varints.
    Numbers,
}

const fn repeated<T>(shape: &'static MessageShape) -> Field {
    Field::Repeated { element_bytes: size_of::<T>(), shape }
}

static LEAF: MessageShape = MessageShape { fields: &[] };
static REDUCER: MessageShape = MessageShape { fields: &[(2, repeated::<(String, String)>(&LEAF))] };
static TOPIC_CONFIG: MessageShape = MessageShape { fields: &[(9, Field::Message(&REDUCER))] };
static CREATE_TOPIC: MessageShape = MessageShape { fields: &[(2, Field::Message(&TOPIC_CONFIG))] };
static DRAFT: MessageShape = MessageShape { fields: &[(4, repeated::<v1::Header>(&LEAF))] };
/// The shape of `PublishRequest` and of `RequestRequest`, which have the same fields.
static PUBLISH: MessageShape = MessageShape { fields: &[(2, Field::Message(&DRAFT))] };
static PUBLISH_BATCH: MessageShape =
    MessageShape { fields: &[(1, repeated::<v1::PublishRequest>(&PUBLISH))] };
static PUBLISH_STREAM: MessageShape = MessageShape { fields: &[(2, repeated::<v1::Draft>(&DRAFT))] };
static POSITIONS: MessageShape = MessageShape { fields: &[(1, repeated::<v1::LogPosition>(&LEAF))] };
static START: MessageShape = MessageShape { fields: &[(4, Field::Message(&POSITIONS))] };
static SUBSCRIBE: MessageShape =
    MessageShape { fields: &[(1, repeated::<String>(&LEAF)), (3, Field::Message(&START))] };
static JOIN: MessageShape = MessageShape { fields: &[(5, Field::Message(&START))] };
/// The shape of `Ack`, `Nack` and `RenewClaims`, which have the same repeated field.
static TOKENS: MessageShape = MessageShape { fields: &[(2, Field::Numbers)] };
static JOIN_GROUP: MessageShape = MessageShape {
    fields: &[
        (1, Field::Message(&JOIN)),
        (4, Field::Message(&TOKENS)),
        (5, Field::Message(&TOKENS)),
        (6, Field::Message(&TOKENS)),
    ],
};
static TXN: MessageShape = MessageShape {
    fields: &[
        (1, repeated::<v1::Compare>(&LEAF)),
        (2, repeated::<v1::RequestOp>(&LEAF)),
        (3, repeated::<v1::RequestOp>(&LEAF)),
    ],
};
static TASK_DRAFT: MessageShape = MessageShape {
    fields: &[
        (10, repeated::<v1::TaskAfter>(&LEAF)),
        (11, repeated::<v1::TaskLabel>(&LEAF)),
        (12, repeated::<v1::TaskLabel>(&LEAF)),
    ],
};
static SUBMIT_TASKS: MessageShape = MessageShape { fields: &[(2, repeated::<v1::TaskDraft>(&TASK_DRAFT))] };
static MESSAGE: MessageShape = MessageShape { fields: &[(3, repeated::<(String, String)>(&LEAF))] };
static MESSAGE_BATCH: MessageShape =
    MessageShape { fields: &[(2, repeated::<ratatoskr::PublishRequest>(&MESSAGE))] };

/// The shape of the messages that a client sends in this call. `None` if the messages have no repeated elements.
pub(super) fn request_shape(service: &str, call: &str) -> Option<&'static MessageShape> {
    Some(match (service, call) {
        (DUNLIN, "CreateTopic") => &CREATE_TOPIC,
        (DUNLIN, "Publish" | "Request") => &PUBLISH,
        (DUNLIN, "PublishBatch") => &PUBLISH_BATCH,
        (DUNLIN, "PublishStream") => &PUBLISH_STREAM,
        (DUNLIN, "Subscribe") => &SUBSCRIBE,
        (DUNLIN, "JoinGroup") => &JOIN_GROUP,
        (KV, "Txn") => &TXN,
        (TASKS, "Submit") => &SUBMIT_TASKS,
        (RATATOSKR, "Publish") => &MESSAGE,
        (RATATOSKR, "PublishBatch") => &MESSAGE_BATCH,
        _ => return None,
    })
}

/// Whether the client may send several messages in this call.
pub(super) fn has_many_messages(service: &str, call: &str) -> bool {
    matches!((service, call), (DUNLIN, "PublishStream" | "JoinGroup") | (KV, "LeaseKeepAlive"))
}

/// Counts the elements of one message, whose bytes may come in several parts.
#[derive(Debug)]
pub(super) struct ElementCounter {
    elements_max: usize,
    elements: usize,
    decoded_bytes: usize,
    /// The nested messages to which the next byte belongs, outermost first.
    open: Vec<OpenMessage>,
    next: Varint,
    /// The bits of an incomplete varint that were read so far; `bits_len` is their number.
    bits: u64,
    bits_len: u32,
    /// Number of bytes of the current field that are still to be read. These bytes are skipped, or the numbers in them
    /// are counted.
    skipped_bytes: usize,
    /// Whether the current field is a list of numbers, which are counted.
    has_numbers: bool,
}

#[derive(Debug)]
struct OpenMessage {
    shape: &'static MessageShape,
    /// Number of bytes of the message that are still to be read. Bytes of a nested message in `open` and of a skipped
    /// field are already subtracted.
    bytes: usize,
}

/// The meaning of the next varint.
#[derive(Debug, Clone, Copy)]
enum Varint {
    Key,
    /// The value of the field with this number.
    Value(u32),
    /// The length of the field with this number.
    Length(u32),
}

impl ElementCounter {
    pub(super) fn new(shape: &'static MessageShape, bytes: usize, elements_max: usize) -> ElementCounter {
        ElementCounter {
            elements_max,
            elements: 0,
            decoded_bytes: 0,
            open: vec![OpenMessage { shape, bytes }],
            next: Varint::Key,
            bits: 0,
            bits_len: 0,
            skipped_bytes: 0,
            has_numbers: false,
        }
    }

    /// Upper bound of the memory that the counted elements take after decoding, bytes. Texts and payloads are not
    /// included.
    pub(super) fn decoded_bytes(&self) -> usize {
        self.decoded_bytes
    }

    /// Reads the next bytes of the message. Fails if the message has too many elements, or is not valid protobuf.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Refused> {
        while let [first, rest @ ..] = bytes {
            if self.skipped_bytes == 0 {
                bytes = rest;
                if let Some(number) = self.read_varint_byte(*first)? {
                    self.handle_varint(number)?;
                }
                continue;
            }
            let (skipped, rest) = bytes.split_at(self.skipped_bytes.min(bytes.len()));
            self.skipped_bytes -= skipped.len();
            bytes = rest;
            if self.has_numbers {
                // Each varint ends with a byte without the continuation bit, so these bytes are counted.
                let numbers = skipped.iter().filter(|byte| **byte < 0x80).count();
                self.count(numbers, size_of::<u64>())?;
            }
        }
        Ok(())
    }

    /// Adds a byte to the current varint. Returns the varint if this was its last byte.
    fn read_varint_byte(&mut self, byte: u8) -> Result<Option<u64>, Refused> {
        if self.bits_len == 0 && matches!(self.next, Varint::Key) {
            while self.open.last().is_some_and(|message| message.bytes == 0) {
                self.open.pop();
            }
        }
        self.take(1)?;
        // A varint has at most 64 bits.
        if self.bits_len == 63 && byte > 1 {
            return Err(invalid());
        }
        self.bits |= u64::from(byte & 0x7f) << self.bits_len;
        if byte >= 0x80 {
            self.bits_len += 7;
            return Ok(None);
        }
        self.bits_len = 0;
        Ok(Some(std::mem::take(&mut self.bits)))
    }

    fn handle_varint(&mut self, number: u64) -> Result<(), Refused> {
        match std::mem::replace(&mut self.next, Varint::Key) {
            Varint::Key => {
                let key = u32::try_from(number).map_err(|_| invalid())?;
                let field = key >> 3;
                match key & 7 {
                    _ if field == 0 => return Err(invalid()),
                    0 => self.next = Varint::Value(field),
                    1 => self.skip(8)?,
                    2 => self.next = Varint::Length(field),
                    5 => self.skip(4)?,
                    // The other wire types are groups, which proto3 does not have, and invalid numbers.
                    _ => return Err(invalid()),
                }
            }
            Varint::Value(field) => {
                if let Some(Field::Numbers) = self.field(field) {
                    self.count(1, size_of::<u64>())?;
                }
            }
            Varint::Length(field) => {
                let bytes = usize::try_from(number).map_err(|_| invalid())?;
                match self.field(field) {
                    Some(Field::Message(shape)) => self.enter(shape, bytes)?,
                    Some(Field::Repeated { element_bytes, shape }) => {
                        self.count(1, element_bytes)?;
                        self.enter(shape, bytes)?;
                    }
                    Some(Field::Numbers) => {
                        self.skip(bytes)?;
                        self.has_numbers = true;
                    }
                    None => self.skip(bytes)?,
                }
            }
        }
        Ok(())
    }

    /// Finds the field by its number in the current message. `None` if the field contains no repeated elements.
    fn field(&self, number: u32) -> Option<Field> {
        let fields = self.open.last()?.shape.fields;
        fields.iter().find(|(listed, _)| *listed == number).map(|(_, field)| *field)
    }

    fn enter(&mut self, shape: &'static MessageShape, bytes: usize) -> Result<(), Refused> {
        if shape.fields.is_empty() {
            return self.skip(bytes);
        }
        self.take(bytes)?;
        self.open.push(OpenMessage { shape, bytes });
        Ok(())
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Refused> {
        self.take(bytes)?;
        self.skipped_bytes = bytes;
        self.has_numbers = false;
        Ok(())
    }

    /// Subtracts bytes from those that the current message still has. Fails if the message has fewer. prost would fail
    /// too, but only after it has read beyond the message's end.
    fn take(&mut self, bytes: usize) -> Result<(), Refused> {
        let message = self.open.last_mut().ok_or_else(invalid)?;
        message.bytes = message.bytes.checked_sub(bytes).ok_or_else(invalid)?;
        Ok(())
    }

    fn count(&mut self, elements: usize, element_bytes: usize) -> Result<(), Refused> {
        self.elements += elements;
        self.decoded_bytes = self.decoded_bytes.saturating_add(elements * element_bytes * GROWTH);
        if self.elements > self.elements_max {
            return Err(Refused::limit("grpc.message_elements_max", self.elements_max as u64));
        }
        Ok(())
    }
}

fn invalid() -> Refused {
    Refused::new(ErrorCode::Protocol, "the message is not valid protobuf (proto3)")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use prost::Message;
    use prost_types::field_descriptor_proto::{Label, Type};
    use prost_types::{DescriptorProto, FileDescriptorSet};

    use super::super::proto::DESCRIPTORS;
    use super::*;

    /// All protobuf messages by their full names, which begin with a dot.
    type Messages = HashMap<String, DescriptorProto>;

    fn add_message(scope: &str, message: &DescriptorProto, all: &mut Messages) {
        let name = format!("{scope}.{}", message.name());
        message.nested_type.iter().for_each(|nested| add_message(&name, nested, all));
        all.insert(name, message.clone());
    }

    /// Checks that the shape lists exactly the fields of the message that contain repeated elements.
    fn check_shape(name: &str, shape: &MessageShape, messages: &Messages) {
        for field in &messages[name].field {
            let path = format!("{name}.{}", field.name());
            let listed =
                shape.fields.iter().find(|(number, _)| i64::from(*number) == i64::from(field.number()));
            let listed = listed.map(|(_, field)| *field);
            let is_repeated = field.label() == Label::Repeated;
            let inner = match (is_repeated, field.r#type(), listed) {
                (true, Type::Message | Type::String | Type::Bytes, Some(Field::Repeated { shape, .. })) => {
                    shape
                }
                (false, Type::Message, Some(Field::Message(shape))) => shape,
                (false, _, None) => &LEAF,
                (true, Type::Uint64, Some(Field::Numbers)) => continue,
                _ => panic!("{path} is listed as {listed:?}"),
            };
            if field.r#type() == Type::Message {
                check_shape(field.type_name(), inner, messages);
            }
        }
    }

    #[test]
    fn elements_of_all_repeated_request_fields_are_counted() {
        let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
        let mut messages = Messages::new();
        for file in &files {
            let scope = format!(".{}", file.package());
            file.message_type.iter().for_each(|message| add_message(&scope, message, &mut messages));
        }
        let mut calls = 0;
        for file in &files {
            for service in &file.service {
                let service_name = format!("{}.{}", file.package(), service.name());
                for call in &service.method {
                    let shape = request_shape(&service_name, call.name()).unwrap_or(&LEAF);
                    check_shape(call.input_type(), shape, &messages);
                    assert_eq!(has_many_messages(&service_name, call.name()), call.client_streaming());
                    calls += 1;
                }
            }
        }
        assert!(calls > 30, "{calls} calls");
    }

    /// Counts the elements of a message that arrives in parts of this size.
    fn count(
        shape: &'static MessageShape,
        message: &[u8],
        part_bytes: usize,
        elements_max: usize,
    ) -> Result<usize, Refused> {
        let mut counter = ElementCounter::new(shape, message.len(), elements_max);
        message.chunks(part_bytes).try_for_each(|part| counter.read(part))?;
        Ok(counter.elements)
    }

    fn request(headers: usize) -> v1::PublishRequest {
        // The bytes of the payload look like a message with 500 elements, which must not be counted.
        let payload = [0x0a_u8, 0].repeat(500).into();
        let record =
            v1::Draft { payload, headers: vec![v1::Header::default(); headers], ..Default::default() };
        let producer = Some(v1::Producer { id: 1, epoch: 2, seq: u64::MAX });
        let expect_last_seq = Some(u64::MAX);
        let record = Some(record);
        v1::PublishRequest {
            subject: "t".to_owned(),
            record,
            producer,
            expect_last_seq,
            ..Default::default()
        }
    }

    #[test]
    fn nested_elements_are_counted_for_any_split_of_a_message() {
        let requests = vec![request(0), v1::PublishRequest::default(), request(3)];
        let batch = v1::PublishBatchRequest { requests }.encode_to_vec();
        for part_bytes in [1, 2, 3, 7, 100, batch.len()] {
            assert_eq!(count(&PUBLISH_BATCH, &batch, part_bytes, 6), Ok(6), "{part_bytes}");
            let refused = count(&PUBLISH_BATCH, &batch, part_bytes, 5).unwrap_err();
            assert_eq!(refused, Refused::limit("grpc.message_elements_max", 5));
        }
    }

    #[test]
    fn elements_of_packed_and_unpacked_lists_are_counted() {
        let tokens = vec![1, 300, u64::MAX];
        let ack = v1::Ack { request: 1, tokens: tokens.clone() }.encode_to_vec();
        let single: Vec<u8> = [0x10, 1].repeat(5);
        for (bytes, numbers) in [(ack, 3), (single, 5)] {
            assert_eq!(count(&TOKENS, &bytes, 1, 10), Ok(numbers));
            assert_eq!(count(&TOKENS, &bytes, 100, 10), Ok(numbers));
        }
    }

    #[test]
    fn element_counter_refuses_invalid_protobuf_before_decoding() {
        let wrong: [&[u8]; 6] = [
            // A field of a nested message that is longer than the nested message.
            &[0x0a, 2, 0x12, 100, 0, 0],
            &[0x0a, 1, 0x12, 0],
            // A field with the number 0, and a group.
            &[0, 0],
            &[0x0b, 0x0c],
            // A varint of 65 bits, and a varint of eleven bytes.
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0],
        ];
        for bytes in wrong {
            assert_eq!(count(&PUBLISH_BATCH, bytes, 1, 10), Err(invalid()), "{bytes:?}");
        }
    }

    #[test]
    fn memory_estimate_of_a_decoded_request_includes_its_task_list() {
        let message = [0x12_u8, 0].repeat(1_000);
        let mut counter = ElementCounter::new(&SUBMIT_TASKS, message.len(), 1_000);
        counter.read(&message).unwrap();
        let decoded = v1::SubmitTasksRequest::decode(&message[..]).unwrap();
        assert!(counter.decoded_bytes() >= decoded.tasks.capacity() * size_of::<v1::TaskDraft>());
    }
}
