//! A note is a list of the producers of a block's records. It is stored after the records. With the notes, a restarted
//! node recognizes records that a producer sends again.
//!
//! ```text
//!  0          8                16     20    24             32          40
//!  +----------+----------------+------+-----+--------------+-----------+------- …
//!  | producer | producer_epoch | zero       | producer_seq | first_seq | count
//!  | u64      | u32            | u32        | u64          | u64       | u64
//!  +----------+----------------+------------+--------------+-----------+------- …
//! ```

use dunlin_topic::{ProducerMark, StagedProducer};

const MARK_BYTES: usize = 40;

/// Encodes the producers of records as a note, into `out`.
pub(super) fn encode(marks: &[StagedProducer], out: &mut Vec<u8>) {
    out.clear();
    for StagedProducer { mark, first_seq, count } in marks {
        out.extend_from_slice(&mark.producer.to_le_bytes());
        out.extend_from_slice(&u64::from(mark.producer_epoch).to_le_bytes());
        out.extend_from_slice(&mark.producer_seq.to_le_bytes());
        out.extend_from_slice(&first_seq.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
    }
}

/// Decodes the producers in a note. The caller has verified the note's checksum.
pub(super) fn decode(note: &[u8]) -> impl Iterator<Item = StagedProducer> {
    note.chunks_exact(MARK_BYTES).filter_map(|mark| {
        let mut words =
            mark.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let (producer, producer_epoch) = (words.next()?, words.next()? as u32);
        let (producer_seq, first_seq, count) = (words.next()?, words.next()?, words.next()?);
        let mark = ProducerMark { producer, producer_epoch, producer_seq };
        (count > 0 && producer_seq > 0).then_some(StagedProducer { mark, first_seq, count })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_producers_are_read_back_as_written() {
        let mark = |n: u64| StagedProducer {
            mark: ProducerMark { producer: u64::MAX - n, producer_epoch: 7, producer_seq: 1 << 40 },
            first_seq: n + 1,
            count: 3,
        };
        let marks: Vec<_> = (0..5).map(mark).collect();
        let mut note = Vec::new();
        encode(&marks, &mut note);
        assert!(note.len().is_multiple_of(8) && decode(&note).eq(marks));
    }
}
