use std::collections::BTreeMap;

use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};

use super::record::{BadLine, Document, Markup};
use super::*;

/// An encoder that counts letters, so that texts with similar letters are similar.
struct Letters {
    fingerprint: u64,
}

impl Encoder for Letters {
    fn name(&self) -> &str {
        "letters"
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn dimensions(&self) -> usize {
        26
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        for text in texts {
            let mut counts = [0.0_f32; 26];
            for letter in text.to_ascii_lowercase().bytes().filter(u8::is_ascii_lowercase) {
                counts[usize::from(letter - b'a')] += 1.0;
            }
            let norm = counts.iter().map(|count| count * count).sum::<f32>().sqrt();
            vectors.extend(counts.iter().map(|count| if norm > 0.0 { count / norm } else { 0.0 }));
        }
        Ok(Encoded { tokens: 0, cut: 0 })
    }
}

fn document(id: &str, title: &str, text: &str) -> Document {
    let (id, title, text) = (id.to_owned(), title.to_owned(), text.to_owned());
    Document { id, title, text, metadata: BTreeMap::new(), markup: Markup::Plain }
}

fn about(mut document: Document, key: &str, value: &str) -> Document {
    document.metadata.insert(key.to_owned(), value.to_owned());
    document
}

fn config() -> DocumentsConfig {
    DocumentsConfig { map_size_mib: 64, ..DocumentsConfig::default() }
}

fn import(folder: &Path, encoder: Option<&dyn Encoder>, changes: Vec<Change>) -> Report {
    let importer = Importer::open(folder, &config(), 200, encoder).unwrap();
    importer.run(|change| changes.into_iter().try_for_each(change)).unwrap()
}

fn put(folder: &Path, documents: Vec<Document>) -> Report {
    import(folder, None, documents.into_iter().map(Change::Put).collect())
}

fn open(folder: &Path) -> Documents {
    Documents::open(folder, &config()).unwrap()
}

/// The ids of the chunks that a full-text search finds.
fn found(documents: &Documents, text: &str, within: Option<&[u32]>) -> Vec<String> {
    let found = documents.by_words(text, within, 10).unwrap();
    found.iter().map(|it| documents.chunk(it.chunk).unwrap().unwrap().id).collect()
}

fn hotels() -> Vec<Document> {
    vec![
        about(document("a", "Ashley Hotel", "Parking is free for guests."), "kind", "faq"),
        document("b", "Ashley Hotel", "The rooms were quiet. The breakfast was cold."),
        about(document("c", "Gonville Hotel", "Guests pay for parking."), "kind", "faq"),
        about(document("d", "长城饭店", "早餐从七点开始。停车场是免费的。"), "kind", "问答"),
    ]
}

#[test]
fn words_find_chunks_in_both_languages() {
    let folder = tempfile::tempdir().unwrap();
    let report = put(folder.path(), hotels());
    assert_eq!((report.added, report.documents, report.chunks), (4, 4, 4));
    let documents = open(folder.path());
    assert_eq!(found(&documents, "Is the parking free?", None)[0], "a#0");
    assert_eq!(found(&documents, "停車場免費嗎", None), ["d#0"]);
    assert!(found(&documents, "what is it", None).is_empty());
    assert!(found(&documents, "zeppelin", None).is_empty());
    let scores = documents.by_words("quiet rooms zeppelin", None, 10).unwrap();
    assert!(scores[0].score > 0.0 && scores[0].score < 1.0, "the zeppelin is not there");
}

#[test]
fn a_score_is_bm25_as_a_share_of_the_most() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), vec![document("x", "", "tea coffee tea"), document("y", "", "coffee")]);
    let found = open(folder.path()).by_words("tea", None, 10).unwrap();
    // One of two chunks holds the term, twice among three terms; the mean is two terms. k1 = 1.2, b
    // = 0.75; the idf is in both the score and its maximum, and cancels.
    let expected = 2.0 / (2.0 + 1.2 * (1.0 - 0.75 + 0.75 * 3.0 / 2.0));
    assert_eq!(found.len(), 1);
    assert!((found[0].score - expected).abs() < 1e-5, "{} is not {expected}", found[0].score);
}

#[test]
fn equals_stand_in_the_order_of_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), (0..9).map(|at| document(&format!("d{at}"), "", "same words")).collect());
    // The first document is replaced twice, by other words and by the original ones, so its chunk
    // has the last number.
    put(folder.path(), vec![document("d0", "", "other words")]);
    put(folder.path(), vec![document("d0", "", "same words")]);
    let ids = found(&open(folder.path()), "same words", None);
    let expected: Vec<String> = (1..9).chain([0]).map(|at| format!("d{at}#0")).collect();
    assert_eq!(ids, expected);
}

#[test]
fn searches_stay_within_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), hotels());
    let documents = open(folder.path());
    let faq = [("kind".to_owned(), "faq".to_owned())];
    let within = documents.select(&faq, &[]).unwrap();
    assert_eq!(found(&documents, "parking breakfast", Some(&within)), ["a#0", "c#0"]);
    let one = documents.select(&faq, &["c".to_owned(), "b".to_owned()]).unwrap();
    assert_eq!(found(&documents, "parking breakfast", Some(&one)), ["c#0"]);
    assert!(found(&documents, "parking", Some(&[])).is_empty());
    let named = documents.named_in("How about the Gonville?");
    assert_eq!(found(&documents, "parking", Some(&named)), ["c#0"]);
    assert_eq!(documents.named_in("长城饭店有早餐吗").len(), 1);
}

#[test]
fn a_change_keeps_what_did_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let long = |second: &str| {
        let text = format!("{}\n\n{second}", "The first part stays. ".repeat(9).trim());
        document("long", "Manual", &text)
    };
    put(folder.path(), vec![long("The zebra part is old.")]);
    let before = open(folder.path()).select(&[], &[]).unwrap();
    assert_eq!(before.len(), 2);
    let report = put(folder.path(), vec![long("The giraffe part is new.")]);
    assert_eq!((report.updated, report.chunks_written, report.chunks), (1, 1, 2));
    let documents = open(folder.path());
    let after = documents.select(&[], &[]).unwrap();
    assert_eq!((before[0], after.contains(&before[1])), (after[0], false));
    assert_eq!(found(&documents, "giraffe", None), ["long#1"]);
    assert!(found(&documents, "zebra", None).is_empty());
    drop(documents);
    let report = put(folder.path(), vec![long("The giraffe part is new.")]);
    assert_eq!((report.unchanged, report.updated, report.chunks_written), (1, 0, 0));
}

#[test]
fn what_is_deleted_is_gone_and_no_longer_counts() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), hotels());
    let delete = |id: &str| Change::Delete(id.to_owned());
    let report = import(folder.path(), None, vec![delete("a"), delete("nobody")]);
    assert_eq!((report.deleted, report.missing, report.documents), (1, 1, 3));
    let documents = open(folder.path());
    assert_eq!(found(&documents, "parking", None), ["c#0"]);
    assert_eq!(documents.words.chunks_with("park").unwrap(), 1);
    assert_eq!(documents.list(9).unwrap().len(), 3);
}

#[test]
fn nothing_of_an_import_that_fails_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), hotels());
    let importer = Importer::open(folder.path(), &config(), 200, None).unwrap();
    let failed = importer.run(|change| {
        change(Change::Put(document("e", "", "A zeppelin lands.")))?;
        Err(DocumentsError::Missing { folder: "elsewhere".into() })
    });
    assert!(failed.is_err());
    let documents = open(folder.path());
    assert_eq!(documents.extent().documents, 4);
    assert!(found(&documents, "zeppelin", None).is_empty());
}

#[test]
fn an_index_that_fell_behind_is_refused_and_mended() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), hotels());
    // The state after a crash between the two commits.
    std::fs::remove_dir_all(folder.path().join(WORDS_FOLDER)).unwrap();
    let refused = Documents::open(folder.path(), &config()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("documents reindex"), "{refused}");
    import(folder.path(), None, Vec::new());
    assert_eq!(found(&open(folder.path()), "breakfast", None), ["b#0"]);
    let nowhere = Documents::open(&folder.path().join("no"), &config()).map(drop).unwrap_err();
    assert!(nowhere.to_string().contains("documents import"), "{nowhere}");
}

#[test]
fn bad_lines_are_counted_and_the_first_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let bad = |line| Change::Bad(BadLine { file: "f".to_owned(), line, reason: "r".to_owned() });
    let report = import(folder.path(), None, (1..=30).map(bad).collect());
    assert_eq!((report.bad, report.bad_lines.len(), report.bad_lines[19].line), (30, 20, 20));
}

#[test]
fn meaning_finds_by_vectors_of_one_encoder() {
    let (folder, letters) = (tempfile::tempdir().unwrap(), Letters { fingerprint: 1 });
    let vector = |text: &str| {
        let mut vector = Vec::new();
        letters.encode(&[text], &mut vector).unwrap();
        vector
    };
    // Chunks imported without an encoder are encoded by the first one that follows.
    put(folder.path(), vec![document("a", "", "aaa bbb"), document("1", "", "12345")]);
    assert!(open(folder.path()).by_meaning(&vector("a"), None, 1).is_err());
    let changes = vec![Change::Put(document("z", "", "zzz yyy"))];
    let report = import(folder.path(), Some(&letters), changes);
    assert_eq!(report.chunks_encoded, 3);
    for max_scanned_vectors in [0, 100] {
        let config = DocumentsConfig { max_scanned_vectors, ..config() };
        let documents = Documents::open(folder.path(), &config).unwrap();
        let found = documents.by_meaning(&vector("bab"), None, 10).unwrap();
        let ids: Vec<String> =
            found.iter().map(|it| documents.chunk(it.chunk).unwrap().unwrap().id).collect();
        assert_eq!(ids, ["a#0", "z#0"], "with up to {max_scanned_vectors} scanned");
        assert!(found[0].score > 0.9 && found[1].score == 0.0);
        assert!(documents.check_encoder("letters", 1).is_ok());
        let refused = documents.check_encoder("other", 2).unwrap_err().to_string();
        assert!(refused.contains("letters") && refused.contains("other"), "{refused}");
    }
    // Another encoder, or none, would add vectors that cannot be compared.
    let other = Letters { fingerprint: 2 };
    assert!(Importer::open(folder.path(), &config(), 200, Some(&other)).is_err());
    let none = Importer::open(folder.path(), &config(), 200, None).unwrap();
    assert!(none.run(|change| change(Change::Put(document("n", "", "new")))).is_err());
    import(folder.path(), None, vec![Change::Delete("a".to_owned())]);
    let found = open(folder.path()).by_meaning(&vector("bab"), None, 10).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn a_place_is_a_document_and_a_heading() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# Returns\n\n## How long\n\nThirty days.\n\n## What it costs\n\nNothing.\n";
    let page = Document { markup: Markup::Markdown, ..document("en/returns.md", "Returns", text) };
    put(folder.path(), vec![page, document("hours", "Hours", "Nine to five.")]);
    let documents = open(folder.path());
    let at = |place: &str| {
        let found = documents.at_place(place).unwrap().into_iter();
        found
            .map(|(id, number)| {
                assert_eq!(documents.chunk(number).unwrap().unwrap().id, id);
                id
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(at("en/returns.md#what-it-costs"), ["en/returns.md#1"]);
    assert_eq!(
        at("docs/en/returns.md#how-long"),
        ["en/returns.md#0"],
        "a folder before it is fine"
    );
    assert_eq!(at("en/returns.md"), ["en/returns.md#0", "en/returns.md#1"]);
    assert_eq!(at("hours"), ["hours#0"]);
    for nowhere in ["en/returns.md#gone", "elsewhere.md#how-long", ""] {
        assert!(at(nowhere).is_empty(), "{nowhere}");
    }
}
