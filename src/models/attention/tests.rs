use super::*;

fn card() -> AttentionCard {
    AttentionCard {
        format_version: FORMAT_VERSION,
        encoder: "water".to_owned(),
        fingerprint: format!("{:016x}", 7),
        words: 2.0,
        words_alone: 5.0,
        trained_on: vec!["questions.jsonl".to_owned()],
        questions: 3,
        licences: Vec::new(),
    }
}

#[test]
fn weights_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let matrix = Matrix::new(2, vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    let bytes = to_bytes(&card(), &matrix).unwrap();
    assert_eq!(bytes, to_bytes(&card(), &matrix).unwrap());
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(read(&path).unwrap(), (card(), matrix));
}

#[test]
fn files_that_are_no_weights_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let told = || read(&path).unwrap_err().to_string();
    assert!(told().contains("cannot read"), "{}", told());
    let matrix = Matrix::new(2, vec![1.0, 2.0, 3.0, f32::NAN]).unwrap();
    let newer = AttentionCard { format_version: 2, ..card() };
    for (bytes, why) in [
        (b"not at all".to_vec(), "train integration"),
        (to_bytes(&card(), &matrix).unwrap(), "not finite"),
        (to_bytes(&newer, &matrix).unwrap(), "layout 2"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        assert!(told().contains(why) && told().contains("weights.safetensors"), "{}", told());
    }
}
