use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use turnstream_knowledge::{Fact, ImportedFact, Unfit};
use turnstream_models::static_table::StaticTable;
use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};

use super::lookup::{FactRecord, lookup};
use super::*;

/// The pack takes a second to compile, so most tests share it.
static PACK_GRAPH: LazyLock<Graph> =
    LazyLock::new(|| read_pack().expect("the pack is read").into_graph());

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn the_pack_is_the_documented_graph() {
    let graph = &*PACK_GRAPH;
    let stats = graph.stats();
    assert_eq!((stats.facts, stats.relations), (283_674, 36));
    assert_eq!(stats.languages, ["en"]);
    let denied = graph.facts().filter(|fact| fact.negated).count();
    assert_eq!(denied, 9_044, "6,000 by their weight and 3,044 by their relation");
    for fact in graph.facts() {
        let relation = graph.relation(fact.relation);
        assert!(!relation.affirms.starts_with("stands in"), "{} has words", relation.name);
    }
}

/// Checks by the lists, and by the beginnings of words, which catch what the lists omit.
#[test]
fn nothing_in_the_pack_is_unfit_to_be_told() {
    let (graph, unfit) = (&*PACK_GRAPH, Unfit::english());
    let begins =
        ["porn", "fuck", "nigge", "whore", "rapist", "murder", "suicid", "heroin ", "marij"];
    for fact in graph.facts() {
        let (head, tail) = (graph.concept(fact.head), graph.concept(fact.tail));
        let relation = &graph.relation(fact.relation).name;
        assert!(!unfit.is_fact(head, relation, tail), "{head} {relation} {tail}");
        let words = || [head, tail].into_iter().flat_map(|concept| concept.split([' ', '-', '\'']));
        let found =
            words().find(|word| begins.iter().any(|begin| format!("{word} ").starts_with(begin)));
        assert_eq!(found, None, "{head} {relation} {tail}");
    }
}

#[test]
fn a_pack_holds_what_it_was_made_from_and_makes_itself_again() {
    let facts = [
        ("coffee", "UsedFor", "wake up", 2.5),
        ("dog", "CapableOf", "fly", -0.7925),
        ("person", "NotDesires", "pay tax", 1.0),
        ("person", "NotDesires", "die", -1.0),
        ("café", "IsA", "place", 0.1),
    ];
    let graph = Graph::from_facts(facts.map(|(h, r, t, w)| ImportedFact::new(h, r, t, w)));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ours.tsv.zst");
    write_pack(&graph, &path).expect("written");
    let mut builder = Builder::new();
    let files = [SourceFile::new(path.clone())];
    let reports = import_files(&files, &mut builder, Progress::Silent).expect("read");
    assert_eq!((reports[0].report.facts, reports[0].report.bad), (5, 0));
    let again = builder.into_graph();
    assert_eq!(again.version(), graph.version());
    assert_eq!(pack(&again).expect("memory"), std::fs::read(&path).expect("read"));
}

#[test]
fn the_shipped_pack_is_what_the_command_makes() {
    let graph = &*PACK_GRAPH;
    let shipped = zstd::decode_all(PACK).expect("zstd");
    let mut made = Vec::with_capacity(shipped.len());
    write_tsv(graph, &mut made).expect("memory");
    assert!(shipped == made, "the pack is not in the form that `knowledge pack` writes");
}

#[test]
fn the_snapshot_of_the_pack_is_compiled_once_and_again_where_it_is_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("not").join("there yet");
    let first = open_pack_in(&cache).expect("compiled");
    let files = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&cache).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let [path] = &files()[..] else { panic!("one file: {:?}", files()) };
    let written = std::fs::metadata(path).and_then(|file| file.modified()).expect("a time");
    let second = open_pack_in(&cache).expect("opened");
    let unchanged = std::fs::metadata(path).and_then(|file| file.modified()).expect("a time");
    assert_eq!((written, first.version()), (unchanged, second.version()));
    drop((first, second));

    std::fs::write(path, b"TURNKNOW and then nothing").expect("written");
    let mended = open_pack_in(&cache).expect("compiled again");
    assert_eq!(mended.stats().facts, 283_674);
    drop(mended);
    assert!(Graph::open(path).is_ok(), "the file is mended too");
}

#[test]
fn without_a_folder_to_write_the_pack_is_compiled_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a file, no folder");
    std::fs::write(&file, b"").expect("written");
    assert_eq!(open_pack_in(&file.join("cache")).expect("in memory").stats().facts, 283_674);
}

#[test]
fn two_openers_at_once_both_get_the_graph() {
    let folder = tempfile::tempdir().expect("a folder");
    let versions: BTreeSet<String> = std::thread::scope(|scope| {
        let open = || open_pack_in(folder.path()).expect("opened").version().to_owned();
        let openers = [scope.spawn(open), scope.spawn(open)];
        openers.map(|opener| opener.join().expect("no panic")).into()
    });
    assert_eq!(versions.len(), 1);
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 1, "no temporary file is left over");
}

#[test]
fn a_pack_keeps_own_words() {
    let own = ImportedFact {
        sentence: Some("The Bergen is soft.".to_owned()),
        ..ImportedFact::new("Contoso Bergen", "IsA", "sofa", 1.0)
    };
    let graph = Graph::from_facts([own, ImportedFact::new("lamp", "MadeOf", "oak", -1.0)]);
    let mut lines = Vec::new();
    write_tsv(&graph, &mut lines).expect("memory");
    let mut builder = Builder::new();
    import(&lines[..], &ImportOptions::default(), &mut builder, |_| ()).expect("memory");
    assert_eq!(builder.into_graph().version(), graph.version());
}

#[test]
fn files_are_told_apart_by_their_first_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    };
    let conceptnet = "/a/x\t/r/IsA\t/c/en/cat\t/c/en/pet\t{\"weight\": 1.0}\n";
    let zstd = zstd::encode_all(&b"IsA\thorse\tanimal\t1\n"[..], 1).expect("memory");
    // Two concatenated gzip members are one file.
    let twice = [gzip("IsA\tdog\tpet\t1\n"), gzip("IsA\tdog\tanimal\t1\nnonsense\n")].concat();
    let files = [write("a", &twice), write("b", &zstd), write("c", conceptnet.as_bytes())];
    let files = files.map(SourceFile::new);
    let mut builder = Builder::new();
    let reports = import_files(&files, &mut builder, Progress::Silent).expect("read");
    assert_eq!(builder.into_graph().stats().facts, 4);
    let first = &reports[0].report;
    assert_eq!((first.lines, first.bad, first.bad_lines[0].line), (3, 1, 3));
}

#[test]
fn refusals_name_the_file_and_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |path: PathBuf| {
        let (files, mut builder) = ([SourceFile::new(path)], Builder::new());
        import_files(&files, &mut builder, Progress::Silent).map(|_| ()).expect_err("refused")
    };
    let missing = refused(folder.path().join("missing.tsv"));
    assert!(missing.to_string().contains("missing.tsv"), "{missing}");
    let empty = folder.path().join("empty.tsv");
    std::fs::write(&empty, "not a fact\n").expect("written");
    let nothing = refused(empty).to_string();
    assert!(nothing.contains("empty.tsv") && nothing.contains("--format"), "{nothing}");
    let cut = folder.path().join("cut.tsv.gz");
    let whole = gzip(&"IsA\tdog\tpet\t1\n".repeat(10_000));
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("written");
    let cut = refused(cut);
    assert!(matches!(cut, KnowledgeError::Import { .. }), "{cut}");
    assert!(cut.to_string().contains("cut.tsv.gz: cannot read line"), "{cut}");
    assert!(open(&folder.path().join("none").display().to_string()).is_err());
}

/// The two sets, by a scan of all facts.
fn scan(graph: &Graph, queries: &[&str], topics: &[&str]) -> [BTreeSet<String>; 2] {
    let mut sets = [BTreeSet::new(), BTreeSet::new()];
    for fact in graph.facts() {
        let Fact { head, tail, .. } = fact;
        let (head, tail) = (graph.concept(head), graph.concept(tail));
        let (q, t) = (|text| queries.contains(&text), |text| topics.contains(&text));
        let foreseen = (q(head) && t(tail)) || (t(head) && q(tail));
        if foreseen || q(head) || q(tail) || t(head) || t(tail) {
            let relation = graph.relation(fact.relation).name;
            let source = graph.source(fact.source);
            sets[usize::from(!foreseen)].insert(format!("{head} {relation} {tail} {source}"));
        }
    }
    sets
}

fn names(facts: &[FactRecord]) -> BTreeSet<String> {
    let name = |fact: &FactRecord| {
        format!("{} {} {} {}", fact.head, fact.relation, fact.tail, fact.source)
    };
    facts.iter().map(name).collect()
}

#[test]
fn a_lookup_finds_what_a_scan_of_the_pack_finds() {
    let graph = &*PACK_GRAPH;
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    for (queries, topics) in [
        (&["coffee", "dog"][..], &["wake up", "pet", "coffee"][..]),
        (&["person"], &["water"]),
        (&["sleep"], &[]),
    ] {
        let [foreseen, unforeseen] = scan(graph, queries, topics);
        let found = lookup(graph, &words(queries), &words(topics), usize::MAX);
        assert_eq!(names(&found.foreseen), foreseen);
        assert_eq!(names(&found.unforeseen), unforeseen);
        assert_eq!(
            found.foreseen.len() + found.unforeseen.len(),
            foreseen.len() + unforeseen.len()
        );
        let cut = lookup(graph, &words(queries), &words(topics), 7);
        assert_eq!(cut.foreseen, found.foreseen[..found.foreseen.len().min(7)]);
        assert_eq!(cut.unforeseen, found.unforeseen[..7], "a cut is the beginning of the whole");
    }
    let found = lookup(graph, &words(&["Waking up", "qwertyuiop"]), &[], 3);
    assert_eq!(found.unknown, ["qwertyuiop"]);
    let names_wake = |fact: &FactRecord| fact.head == "wake up" || fact.tail == "wake up";
    assert!(found.unforeseen.len() == 3 && found.unforeseen.iter().all(names_wake));
}

#[test]
fn sorting_that_finds_no_room_names_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let facts = folder.path().join("facts.tsv");
    std::fs::write(&facts, "IsA\tdog\tpet\t1\n").expect("written");
    let out = facts.join("graph.snapshot");
    let error = import_sorted(&[SourceFile::new(facts)], &out, 1 << 20, Progress::Silent)
        .expect_err("a file is no folder")
        .to_string();
    assert!(error.contains("cannot sort facts in") && error.contains("facts.tsv"), "{error}");
    assert!(error.contains("--out"), "{error}");
}

#[test]
fn a_sorted_import_of_the_pack_is_the_pack() {
    let folder = tempfile::tempdir().expect("a folder");
    let pack = folder.path().join("pack.tsv.zst");
    std::fs::write(&pack, PACK).expect("written");
    let out = folder.path().join("pack.snapshot");
    let files = [SourceFile::new(pack)];
    let (graph, _) = import_sorted(&files, &out, 8 << 20, Progress::Silent).expect("sorted");
    assert_eq!(graph.version(), PACK_GRAPH.version(), "runs of 4 MiB were merged");
}

/// The shipped table, which counts the texts that it encodes.
struct Counting(Arc<StaticTable>, AtomicUsize);

impl Encoder for Counting {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn dimensions(&self) -> usize {
        self.0.dimensions()
    }

    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }

    fn encode(&self, texts: &[&str], into: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        self.1.fetch_add(texts.len(), Ordering::Relaxed);
        self.0.encode(texts, into)
    }
}

#[test]
fn of_several_that_start_at_once_one_embeds_the_pack() {
    let facts = (0..500).map(|at| ImportedFact::new("kettle", "HasA", &format!("part {at}"), 1.0));
    let graph = Graph::from_facts(facts);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pack.vectors");
    let encoder = Counting(StaticTable::shipped().expect("a table"), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let starting: Vec<_> =
            (0..4).map(|_| scope.spawn(|| embed::embed_pack(&graph, &encoder, &path, 1))).collect();
        for started in starting {
            let vectors = started.join().expect("no panic").expect("vectors");
            assert_eq!(vectors.header().facts, 500);
        }
    });
    assert_eq!(encoder.1.into_inner(), 500, "each fact once");
}
