use super::*;
use proptest::prelude::*;

fn progress() -> impl Strategy<Value = Progress> {
    (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| {
        let mut ordered = [a, b, c];
        ordered.sort();
        let [done_bytes, spent_bytes, wanted_bytes] = ordered;
        Progress { done_bytes, spent_bytes, wanted_bytes }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let alone = || any::<(u64, u64)>().prop_map(|(ns, bytes)| SeenAlone { ns, bytes });
    let past = (any::<(u64, u64)>(), alone()).prop_map(|((life_ns, stalled_ns), alone)| Past {
        life_ns,
        stalled_ns,
        alone,
    });
    let numbers = any::<(u32, u32, Option<u64>, Option<u64>, Option<u64>, bool, u64)>();
    let hello = ("\\PC{0,40}", numbers, past).prop_map(|(name, numbers, past)| {
        let (pid, ranks, w_iter_ns, mean_phase_bytes, period_ns, rejoins, epoch) = numbers;
        let (job, application, host, account) = (name.clone(), name.clone(), name.clone(), name);
        let about = Identity { job, application, host, pid, ranks, account, ..Identity::default() };
        let (storage, mount) = (about.job.clone(), about.host.clone());
        let known = Identity { w_iter_ns, mean_phase_bytes, period_ns, ..about };
        let identity = Identity { user: pid, storage, mount, past, ..known };
        Message::Hello { identity: Box::new(identity), rejoins, epoch }
    });
    let resume = (any::<(u64, Option<u64>, u64, bool)>(), progress()).prop_map(|(fields, progress)| {
        let (phase, bytes, age_ns, granted) = fields;
        Message::Resume { phase, bytes, age_ns, granted, progress }
    });
    let file = ("/\\PC{0,40}", any::<(u32, u32, u64, u32, u32)>()).prop_map(|(path, numbers)| {
        let (ranks, nodes, bytes, fixed_aggregators, fixed_stripes) = numbers;
        FileInfo { path, ranks, nodes, bytes, fixed_aggregators, fixed_stripes }
    });
    let piece = any::<[u64; 3]>().prop_map(|[target, offset_bytes, length_bytes]| Piece {
        target,
        offset_bytes,
        length_bytes,
    });
    let read = (any::<(u32, [u64; 5])>(), prop::collection::vec(piece, 0..5)).prop_map(
        |((number, [file, call, target, service_ns, shuffle_ns]), pieces)| {
            let reader = Reader { number, file, call, target, service_ns, shuffle_ns };
            Message::Read { reader, pieces }
        },
    );
    let targets = || prop::collection::vec(any::<u32>(), 0..40);
    prop_oneof![
        hello,
        resume,
        (any::<u64>(), file.clone()).prop_map(|(request, file)| Message::Ask { request, file }),
        (any::<u64>(), file, targets()).prop_map(|(request, file, targets)| Message::Claim {
            request,
            file,
            targets
        }),
        read,
        (any::<(u64, u32, u32)>(), targets()).prop_map(|((request, aggregators, stripes), targets)| {
            Message::Allocated { request, aggregators, stripes, targets }
        }),
        any::<(u32, u64)>().prop_map(|(number, call)| Message::Turn { number, call }),
        any::<(u32, u64)>().prop_map(|(number, call)| Message::Served { number, call }),
        any::<([u8; 32], [u8; 32])>().prop_map(|(nonce, mac)| Message::Proof { nonce, mac }),
        any::<(u64, Option<u64>)>().prop_map(|(phase, bytes)| Message::Begin { phase, bytes }),
        (any::<(u64, u32, u64, bool)>(), progress()).prop_map(|(numbers, progress)| {
            let (phase, in_flight, busy_ns, is_resting) = numbers;
            Message::Moved { phase, progress, in_flight, busy_ns, is_resting }
        }),
        (any::<(u64, u64, u64)>(), 0.0..=1.0).prop_map(|((phase, credit_bytes, expected_ns), share)| {
            Message::Grant { phase, share, credit_bytes, expected_ns }
        }),
        (any::<(u64, u64, u64)>(), 0.0..=1.0).prop_map(|((phase, credit_bytes, expected_ns), share)| {
            Message::Credit { phase, share, credit_bytes, expected_ns }
        }),
        any::<(u64, Option<u64>, u64)>().prop_map(|(phase, bytes, known_bytes)| Message::Announce {
            phase,
            bytes,
            known_bytes
        }),
        any::<Option<u64>>().prop_map(|period_ns| Message::Expect { period_ns }),
        any::<bool>().prop_map(|granted| Message::Ahead { granted }),
        alone().prop_map(|alone| Message::Seen { alone }),
        any::<(bool, String)>().prop_map(|(last, text)| Message::Status { last, text }),
        Just(Message::Beat {}),
    ]
}

proptest! {
    #[test]
    fn a_message_comes_back_as_it_was(message in message(), behind in any::<Vec<u8>>()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let length = bytes.len();
        for cut in 0..length {
            prop_assert_eq!(Message::decode(&bytes[..cut]), Ok(None));
        }
        bytes.extend(behind);
        prop_assert_eq!(Message::decode(&bytes), Ok(Some((message, length))));
    }

    #[test]
    fn bytes_without_sense_do_no_harm(bytes in any::<Vec<u8>>()) {
        let _ = Message::decode(&bytes);
    }

    /// With a good head, so that the fields are looked at.
    #[test]
    fn fields_without_sense_do_no_harm(kind: u8, fields in any::<Vec<u8>>()) {
        let mut bytes = (fields.len() as u32 + 3).to_le_bytes().to_vec();
        bytes.extend([VERSION, kind, UNSEALED]);
        bytes.extend(&fields);
        if let Ok(Some((message, _))) = Message::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn what_is_wrong_with_a_frame_is_said() {
    let decode = |bytes: &[u8]| Message::decode(bytes).map(|_| ());
    assert_eq!(decode(&[0xff; 4]), Err(WireError::TooLong { length_bytes: u32::MAX }));
    assert_eq!(decode(&[1, 0, 1, 0]), Err(WireError::TooLong { length_bytes: 65537 }));
    assert_eq!(decode(&[0, 0, 0, 0]), Err(WireError::Length { kind: 0 }));
    assert_eq!(decode(&[9, 0, 0, 0, 1]), Err(WireError::Version { theirs: 1 }));
    assert_eq!(
        decode(&[2, 0, 0, 0, 4, 8]),
        Err(WireError::Version { theirs: 4 }),
        "shorter than any of this one"
    );
    assert_eq!(decode(&[2, 0, 0, 0, VERSION, 200]), Err(WireError::Length { kind: 0 }));
    assert_eq!(decode(&[3, 0, 0, 0, VERSION, 6, 1]), Err(WireError::Seal(1)));
    assert_eq!(decode(&[3, 0, 0, 0, VERSION, 200, 0]), Err(WireError::Kind(200)));
    assert_eq!(decode(&[4, 0, 0, 0, VERSION, 6, 0, 0]), Err(WireError::Length { kind: 6 }));
    assert_eq!(decode(&[3, 0, 0, 0, VERSION, 68, 0]), Err(WireError::Length { kind: 68 }));
}

#[test]
fn the_longest_text_fits_and_longer_ones_are_cut_between_characters() {
    let mut bytes = Vec::new();
    Message::Refuse { reason: "é".repeat(MAX_FRAME_BYTES) }.encode(&mut bytes);
    let Ok(Some((Message::Refuse { reason }, _))) = Message::decode(&bytes) else { panic!("a good frame") };
    assert_eq!(reason.len(), MAX_TEXT_BYTES);
}

#[test]
fn a_list_is_cut_by_who_sends_and_refused_by_who_receives() {
    let mut bytes = Vec::new();
    let targets = vec![7; MAX_LIST + 1];
    Message::Allocated { request: 1, aggregators: 1, stripes: 1, targets }.encode(&mut bytes);
    let Ok(Some((Message::Allocated { targets, .. }, _))) = Message::decode(&bytes) else {
        panic!("a good frame")
    };
    assert_eq!(targets, [7; MAX_LIST]);
    let count_at = 4 + 3 + 8 + 4 + 4;
    bytes[count_at..count_at + 2].copy_from_slice(&(MAX_LIST as u16 + 1).to_le_bytes());
    let said = Message::decode(&bytes).unwrap_err();
    assert_eq!(said, WireError::Value { kind: 72, what: "a list that is too long" });
}
