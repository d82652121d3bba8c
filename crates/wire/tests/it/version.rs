use dunlin_wire::{
    DecodeOutcome, Decoder, DecoderLimits, ErrorCode, FromClient, FromNode, MessageList, Position, Preamble,
    PublisherStatus, Resync, Settle, VERSION, VERSION_MIN, WireError,
};

#[test]
fn current_and_previous_protocol_version_are_accepted() {
    const { assert!(VERSION == 1 && VERSION_MIN == 1 || VERSION_MIN + 1 == VERSION) };
    for version in VERSION_MIN..=VERSION {
        assert_eq!(Preamble::OURS.negotiate(Preamble::chosen(version)), Ok(version));
    }
}

#[test]
fn decoder_of_an_older_version_refuses_newer_client_messages() {
    let resync = Resync { channel: 1, state: true, after: Position { epoch: 1, seq: 2 } };
    let renew = Settle { request: 1, subscription: 1, tokens: MessageList::new(&[7]) };
    let decode = |message: FromClient<'_>, version| {
        let (mut bytes, mut decoder) = (Vec::new(), Decoder::new(DecoderLimits::default()));
        message.encode(&mut bytes);
        decoder.set_version(version);
        decoder.next_from_client(&bytes).map(|next| matches!(next, DecodeOutcome::Message(..)))
    };
    assert_eq!(decode(FromClient::Renew(renew), 3), Ok(true));
    assert_eq!(decode(FromClient::Renew(renew), 2), Err(WireError::UnknownKind(23)));
    assert_eq!(decode(FromClient::Resync(resync), 2), Ok(true));
    assert_eq!(decode(FromClient::Resync(resync), 1), Err(WireError::UnknownKind(20)));
}

#[test]
fn protocol_version_4_has_no_publisher_notice() {
    let publishers = PublisherStatus { channel: 1, connected: false, since_ns: 2, last_append_ns: Some(1) };
    let decode = |version| {
        let (mut bytes, mut decoder) = (Vec::new(), Decoder::new(DecoderLimits::default()));
        FromNode::Publishers(publishers).encode(&mut bytes);
        decoder.set_version(version);
        decoder.next_from_node(&bytes).map(|next| matches!(next, DecodeOutcome::Message(..)))
    };
    assert_eq!(decode(5), Ok(true));
    assert_eq!(decode(4), Err(WireError::UnknownKind(97)));
}

#[test]
fn highest_common_protocol_version_is_chosen() {
    let node = Preamble { version_min: 3, version_max: 4 };
    for (min, max, chosen) in [(1, 3, 3), (1, 9, 4), (4, 9, 4), (3, 3, 3)] {
        assert_eq!(node.negotiate(Preamble { version_min: min, version_max: max }), Ok(chosen));
    }
}

#[test]
fn refusal_of_unsupported_versions_names_the_supported_ones() {
    let node = Preamble { version_min: 3, version_max: 4 };
    for (min, max) in [(1, 2), (5, 9)] {
        let refusal = node.negotiate(Preamble { version_min: min, version_max: max }).unwrap_err();
        assert_eq!((refusal.code, refusal.numbers), (ErrorCode::Version, [3, 4, 0]));
    }
}

#[test]
fn invalid_preamble_is_refused_at_its_first_wrong_byte() {
    assert_eq!(Preamble::parse(b""), Ok(None));
    assert_eq!(Preamble::parse(b"DUNLIN\x01"), Ok(None));
    assert_eq!(Preamble::parse(b"DUNLIN\x01\x01etc"), Ok(Some(Preamble::chosen(1))));
    assert_eq!(Preamble::parse(b"GET"), Err(WireError::Magic(*b"GET\0\0\0\0\0")));
    assert_eq!(Preamble::parse(b"DUNLIN\x02\x01"), Err(WireError::VersionRange { min: 2, max: 1 }));
    assert_eq!(Preamble::parse(b"DUNLIN\x00\x00"), Err(WireError::VersionRange { min: 0, max: 0 }));
}
