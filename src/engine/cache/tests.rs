use proptest::prelude::*;
use turnstream_ports::cache::MemoryCache;
use turnstream_schemas::EntryKey;

use super::*;

fn cache() -> (tempfile::TempDir, DiskCache) {
    let parent = tempfile::tempdir().unwrap();
    let cache = DiskCache::open_in(parent.path(), 16).unwrap();
    (parent, cache)
}

fn change(scope: &str, entry: Option<(i32, i64)>, value: Option<&str>) -> CacheChange {
    let entry = entry.map(|(partition, offset)| EntryId { partition, offset });
    let key = EntryKey { scope: Scope::new(None, scope), entry };
    CacheChange { key, value: value.map(|value| value.as_bytes().to_vec()) }
}

fn loaded(cache: &dyn ScopeCache, generation: u32, scope: &str) -> Option<Vec<String>> {
    let loaded = cache.load(7, generation, &Scope::new(None, scope)).unwrap();
    let of = |Cached { entry, value }| {
        let value = String::from_utf8(value).unwrap();
        entry.map_or(value.clone(), |entry| format!("{entry}={value}"))
    };
    loaded.map(|records| records.into_iter().map(of).collect())
}

#[test]
fn a_scope_comes_back_in_the_order_of_the_log() {
    let (_parent, cache) = cache();
    cache.begin(7, 1).unwrap();
    let long = "x".repeat(3_000);
    for scope in ["c", &long] {
        let changes = vec![
            change(scope, Some((7, 300)), Some("late")),
            change(scope, Some((7, 2)), Some("early")),
            change(scope, Some((7, 5)), Some("gone")),
            change(scope, None, Some("first")),
            change(scope, Some((7, 5)), None),
            change(scope, None, Some("own")),
            change(scope, Some((7, 999)), None),
        ];
        cache.put(7, 1, changes).unwrap();
        assert_eq!(loaded(&cache, 1, scope).unwrap(), ["own", "7-2=early", "7-300=late"]);
    }
    assert_eq!(loaded(&cache, 1, "another").unwrap(), [""; 0]);
    cache.forget(7, 1, &Scope::new(None, "c")).unwrap();
    assert_eq!(loaded(&cache, 1, "c").unwrap(), [""; 0]);
    assert_eq!(loaded(&cache, 1, &long).unwrap().len(), 3, "and nobody else");
}

#[derive(Clone, Debug)]
enum Act {
    Put(u32, Vec<(u8, Option<i64>, Option<u8>)>),
    Forget(u32, u8),
    Begin(u32),
    End,
}

fn act() -> impl Strategy<Value = Act> {
    let record = (0..4_u8, prop::option::of(-2..3_i64), prop::option::of(any::<u8>()));
    prop_oneof![
        6 => (1..3_u32, prop::collection::vec(record, 0..8)).prop_map(|(of, all)| Act::Put(of, all)),
        1 => (1..3_u32, 0..4_u8).prop_map(|(of, scope)| Act::Forget(of, scope)),
        1 => (1..3_u32).prop_map(Act::Begin),
        1 => Just(Act::End),
    ]
}

fn perform(cache: &dyn ScopeCache, act: &Act) {
    let name = |scope: u8| format!("c{scope}");
    match act {
        Act::Put(generation, records) => {
            let changes = records.iter().map(|(scope, offset, value)| {
                let value = value.map(|value| value.to_string());
                change(&name(*scope), offset.map(|offset| (7, offset)), value.as_deref())
            });
            cache.put(7, *generation, changes.collect()).unwrap();
        }
        Act::Forget(generation, scope) => {
            cache.forget(7, *generation, &Scope::new(None, &name(*scope))).unwrap();
        }
        Act::Begin(generation) => cache.begin(7, *generation).unwrap(),
        Act::End => cache.end(7),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn on_disk_it_is_as_in_memory(acts in prop::collection::vec(act(), 1..24)) {
        let (_parent, disk) = cache();
        let memory = MemoryCache::default();
        for act in &acts {
            perform(&disk, act);
            perform(&memory, act);
            for (generation, scope) in (1..3).flat_map(|of| (0..4).map(move |at| (of, at))) {
                let scope = format!("c{scope}");
                prop_assert_eq!(
                    loaded(&disk, generation, &scope),
                    loaded(&memory, generation, &scope)
                );
            }
        }
    }
}

#[test]
fn partitions_take_their_files_with_them() {
    let (parent, cache) = cache();
    let folder = cache.folder().to_owned();
    let folders = || {
        let all = std::fs::read_dir(&folder).unwrap().map(|of| of.unwrap().path());
        all.filter(|path| path.is_dir()).count()
    };
    for partition in 0..3 {
        cache.begin(partition, 1).unwrap();
    }
    cache.begin(0, 2).unwrap();
    assert_eq!(folders(), 3);
    cache.end(1);
    cache.end(1);
    assert_eq!(folders(), 2);
    drop(cache);
    assert!(!folder.exists() && parent.path().exists());
}

#[test]
fn what_dead_processes_left_is_removed_and_what_others_use_is_not() {
    let (parent, used) = cache();
    used.begin(7, 1).unwrap();
    used.put(7, 1, vec![change("c", None, Some("own"))]).unwrap();
    let left = parent.path().join("1234-0");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join(OWNER_LOCK), "").unwrap();
    let strange = parent.path().join("not ours");
    std::fs::create_dir(&strange).unwrap();
    let second = DiskCache::open_in(parent.path(), 16).unwrap();
    assert!(!left.exists() && strange.exists());
    assert_ne!(second.folder(), used.folder());
    assert_eq!(loaded(&used, 1, "c").unwrap(), ["own"]);
}

#[test]
fn errors_name_the_folder_and_the_remedy() {
    let parent = tempfile::tempdir().unwrap();
    let cache = DiskCache::open_in(parent.path(), 1).unwrap();
    cache.begin(7, 1).unwrap();
    let huge = "x".repeat(2 << 20);
    let error = cache.put(7, 1, vec![change("c", None, Some(&huge))]).unwrap_err().to_string();
    let folder = cache.folder().display().to_string();
    assert!(error.contains(&folder) && error.contains("run.cache_map_size_mib"), "{error}");
    cache.put(7, 1, vec![change("c", None, Some("small"))]).unwrap();
    assert_eq!(loaded(&cache, 1, "c").unwrap(), ["small"], "and goes on");

    let file = parent.path().join("a file");
    std::fs::write(&file, "").unwrap();
    let error = DiskCache::open_in(&file.join("folder"), 1).err().unwrap().to_string();
    assert!(error.contains("a file/folder") && error.contains("run.cache_directory"), "{error}");
}

/// A worker reads and writes one partition while others are restored, its own begins again, and
/// other processes come and go in the same folder.
#[test]
fn a_worker_goes_on_beside_restorations_and_neighbours() {
    const GENERATIONS: u32 = 60;
    let (parent, cache) = cache();
    let (parent, current) = (parent.path(), AtomicU64::new(0));
    let scopes: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for generation in 1..=GENERATIONS {
                for partition in [7, 8] {
                    cache.begin(partition, generation).unwrap();
                    for scope in &scopes {
                        let changes = ["own", "x"].map(|value| {
                            change(scope, (value == "x").then_some((7, 1)), Some(value))
                        });
                        cache.put(partition, generation, changes.into()).unwrap();
                    }
                }
                current.store(u64::from(generation), Ordering::Release);
            }
            cache.end(7);
            current.store(u64::MAX, Ordering::Release);
        });
        threads.spawn(|| {
            while current.load(Ordering::Acquire) < u64::MAX {
                // A folder as a killed process leaves it, and one of a process that ends.
                let dead = parent.join("1-0");
                std::fs::create_dir_all(&dead).unwrap();
                File::create(dead.join(OWNER_LOCK)).unwrap();
                let neighbour = DiskCache::open_in(parent, 16).unwrap();
                neighbour.begin(7, 1).unwrap();
                neighbour.put(7, 1, vec![change("c0", None, Some("its"))]).unwrap();
            }
        });
        let mut number = 0;
        loop {
            let generation = current.load(Ordering::Acquire);
            let Ok(generation) = u32::try_from(generation) else { break };
            let scope = &scopes[number % scopes.len()];
            number += 1;
            if let Some(records) = loaded(&cache, generation, scope) {
                assert!(records.is_empty() || records == ["own", "7-1=x"], "{records:?}");
            }
            if number % 3 == 0 {
                cache.forget(7, generation, &Scope::new(None, scope)).unwrap();
            } else {
                let whole =
                    [change(scope, None, Some("own")), change(scope, Some((7, 1)), Some("x"))];
                cache.put(7, generation, whole.into()).unwrap();
            }
        }
    });
}
