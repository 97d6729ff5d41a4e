use std::path::Path;

use heed::{CommitOrAbort, EnvOpenOptions};

use super::*;

#[allow(unsafe_code)]
fn environment(folder: &Path) -> (Env<WithoutTls>, TreeTable) {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(1 << 28).max_dbs(1);
    // SAFETY: the folder is new, and nothing else opens it.
    let env = unsafe { options.open(folder) }.unwrap();
    let txn = env.write_txn().unwrap();
    let made = env.create_databases_and_commit(txn, |databases, txn| {
        let table = databases.create_database(txn, Some("vectors"))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(table))
    });
    let CommitOrAbort::Commit(table) = made.unwrap() else { unreachable!("it commits") };
    (env, table)
}

/// Vectors around 40 centres, as texts lie around topics.
fn clustered(count: u32, dimensions: usize) -> Vec<Vec<f32>> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut vector = |spread: f32| -> Vec<f32> {
        (0..dimensions).map(|_| (random.f32() - 0.5) * spread).collect()
    };
    let centres: Vec<Vec<f32>> = (0..40).map(|_| vector(1.0)).collect();
    (0..count)
        .map(|at| {
            let centre = &centres[at as usize % centres.len()];
            vector(0.7).iter().zip(centre).map(|(noise, centre)| noise + centre).collect()
        })
        .collect()
}

fn filled(folder: &Path, vectors: &[Vec<f32>]) -> Trees {
    let (env, table) = environment(folder);
    let (writer, config) = (TreesWriter::new(table, vectors[0].len()), TreeConfig::default());
    let mut txn = env.write_txn().unwrap();
    for (item, vector) in vectors.iter().enumerate() {
        writer.put(&mut txn, item as u32, vector).unwrap();
    }
    writer.build(&mut txn, &config).unwrap();
    txn.commit().unwrap();
    Trees::new(env, table, vectors[0].len(), &config, "test".to_owned())
}

#[test]
fn trees_find_what_the_scan_finds() {
    let folder = tempfile::tempdir().unwrap();
    let vectors = clustered(3_000, 32);
    let trees = filled(folder.path(), &vectors);
    let scan = trees.to_scan().unwrap();
    assert_eq!((scan.len() as u64, trees.len().unwrap()), (3_000, 3_000));
    let items = |found: &[Found]| found.iter().map(|it| it.item).collect::<Vec<_>>();
    let some: Vec<u32> = (0..3_000).filter(|item| item % 7 == 0).collect();
    let (mut right, mut all) = (0, 0);
    for query in clustered(3_050, 32).split_off(3_000) {
        let oracle = scan.search(&query, 10, None).unwrap();
        let found = trees.search(&query, 10, None).unwrap();
        for (one, other) in oracle.iter().zip(&found).take(1) {
            assert!((one.similarity - other.similarity).abs() < 1e-5);
        }
        right += items(&oracle).iter().filter(|item| items(&found).contains(item)).count();
        all += oracle.len();
        let (oracle, found) =
            (scan.search(&query, 10, Some(&some)), trees.search(&query, 10, Some(&some)));
        assert_eq!(items(&oracle.unwrap()), items(&found.unwrap()), "filtered is exact");
    }
    assert!(right as f64 >= 0.95 * all as f64, "{right} of {all}");
}

#[test]
fn zero_vectors_are_like_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let trees = filled(folder.path(), &[vec![1.0, 0.0], vec![0.0, 0.0], vec![0.0, 1.0]]);
    let found = trees.search(&[1.0, 0.1], 5, None).unwrap();
    assert_eq!(found.iter().map(|found| found.item).collect::<Vec<_>>(), [0, 2]);
    assert!(trees.search(&[0.0, 0.0], 5, None).unwrap().is_empty());
    assert!(matches!(trees.search(&[1.0], 5, None), Err(SearchError::Dimensions { .. })));
}

#[test]
fn changes_count_once_they_are_built() {
    let folder = tempfile::tempdir().unwrap();
    let trees = filled(folder.path(), &clustered(100, 4));
    let writer = TreesWriter::new(trees.table, 4);
    let mut txn = trees.env.write_txn().unwrap();
    writer.delete(&mut txn, 3).unwrap();
    writer.put(&mut txn, 200, &[1.0, 0.0, 0.0, 0.0]).unwrap();
    writer.build(&mut txn, &TreeConfig::default()).unwrap();
    txn.commit().unwrap();
    let found = trees.search(&[1.0, 0.0, 0.0, 0.0], 200, None).unwrap();
    assert_eq!((found.len(), found[0].item), (100, 200));
    assert!(found.iter().all(|found| found.item != 3));
    // Vectors that were added but not built are refused, not silently omitted.
    let mut txn = trees.env.write_txn().unwrap();
    writer.put(&mut txn, 201, &[1.0, 0.0, 0.0, 0.0]).unwrap();
    txn.commit().unwrap();
    let error = trees.search(&[1.0, 0.0, 0.0, 0.0], 1, None).unwrap_err();
    assert!(error.to_string().contains("import the documents again"), "{error}");
}
