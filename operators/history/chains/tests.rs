use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn text(text: &str) -> Signature {
    Signature::of([text])
}

/// The chains of these utterances, one entry each, numbered from 0; `<` marks one that refers back.
fn told(said: &[&str], config: &ChainsConfig) -> Chains {
    let texts: Vec<Signature> = said.iter().map(|said| text(said)).collect();
    let mut chains = Chains::default();
    for (entry, said) in (0..).zip(said) {
        let text_of = |at: i64| texts.get(at as usize);
        let text = &texts[entry as usize];
        chains.insert(entry, text, said.starts_with('<'), text_of, config);
    }
    chains
}

fn shape(chains: &Chains) -> Vec<Vec<i64>> {
    chains.all().map(|(_, entries)| entries.to_vec()).collect()
}

#[test]
fn an_entry_extends_the_chain_that_it_is_most_like() {
    let said = ["late parcel", "violin strings", "parcel from town", "strings", "rain"];
    let chains = told(&said, &ChainsConfig::default());
    assert_eq!(shape(&chains), [vec![0, 2], vec![1, 3], vec![4]]);
    assert_eq!(chains.of(2), Some((0, [0, 2].as_slice())));
    assert_eq!(chains.of(9), None);
}

#[test]
fn what_refers_back_continues_the_exchange_before() {
    let said = ["late parcel", "violin strings", "< and the parcel"];
    assert_eq!(shape(&told(&said, &ChainsConfig::default())), [vec![0], vec![1, 2]]);
    assert_eq!(shape(&told(&["< and"], &ChainsConfig::default())), [[0]]);
}

#[test]
fn chains_are_bounded_in_length_and_in_how_many_are_open() {
    let config = ChainsConfig { max_entries: 2, ..ChainsConfig::default() };
    let said = ["parcel", "parcel", "parcel", "< it", "< it"];
    assert_eq!(shape(&told(&said, &config)), [vec![0, 1], vec![2, 3], vec![4]]);

    let config = ChainsConfig { max_open: 1, ..ChainsConfig::default() };
    let said = ["parcel", "violin", "parcel", "parcel"];
    assert_eq!(shape(&told(&said, &config)), [vec![0], vec![1], vec![2, 3]]);
}

#[test]
fn removing_an_entry_keeps_the_others_in_order() {
    let mut chains = told(&["parcel", "parcel", "parcel"], &ChainsConfig::default());
    chains.remove(1);
    assert_eq!(shape(&chains), [[0, 2]]);
    chains.remove(2);
    assert_eq!((shape(&chains), chains.ends.len()), (vec![vec![0]], 1));
    chains.remove(0);
    assert_eq!(chains, Chains { next: 1, ..Chains::default() });
}

proptest! {
    /// Every entry is in one chain, in order and within bounds, and a restart from the record
    /// changes nothing that follows.
    #[test]
    fn chains_are_sound_and_survive_a_restart(
        events in proptest::collection::vec((0..6_u8, 0..20_usize), 1..60),
        max_entries in 1..4_u32,
        max_open in 1..4_u32,
    ) {
        let config = ChainsConfig { max_entries, max_open, ..ChainsConfig::default() };
        let (mut lived, mut restarted) = (Chains::default(), Chains::default());
        let mut there: BTreeMap<i64, Signature> = BTreeMap::new();
        for (at, (kind, place)) in (0_i64..).zip(events) {
            match kind {
                0..=3 => {
                    there.insert(at, text(["dog", "rain", "dog rain", ""][place % 4]));
                    for chains in [&mut lived, &mut restarted] {
                        let text_of = |at| there.get(&at);
                        chains.insert(at, &there[&at], kind == 3, text_of, &config);
                    }
                }
                4 => {
                    let gone = there.keys().copied().nth(place % there.len().max(1));
                    if let Some(gone) = gone {
                        there.remove(&gone);
                        lived.remove(gone);
                        restarted.remove(gone);
                    }
                }
                _ => {
                    let (records, next) = restarted.records();
                    restarted = Chains::restored(&records, next, |at| there.contains_key(&at));
                }
            }
            prop_assert_eq!(&lived, &restarted);
            let mut seen: Vec<i64> = Vec::new();
            for (number, entries) in lived.all() {
                prop_assert!(entries.is_sorted() && entries.len() <= max_entries as usize);
                prop_assert!(entries.iter().all(|at| lived.of(*at) == Some((number, entries))));
                prop_assert!(lived.ends.contains(&(entries[entries.len() - 1], number)));
                seen.extend(entries);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, there.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(lived.ends.len(), lived.chains.len());
        }
    }
}
