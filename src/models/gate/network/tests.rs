//! Every parameter learns in every variant, and a turn's logits do not depend on its neighbours.

use candle_core::Var;
use turnstream_schemas::Speaker;

use super::*;
use crate::gate::reading::{CutTurn, Reader, TokenKind, Vocabulary, assemble};
use crate::gate::table_of;

const VARIANTS: [Variant; 4] =
    [Variant::Contx, Variant::ContxPlusKnow, Variant::ContxTimesKnow, Variant::ContxPlusResp];

fn shape(variant: Variant, pools_current: bool) -> NetworkShape {
    NetworkShape {
        variant,
        width: 16,
        heads: 4,
        layers: 2,
        feed_forward: 32,
        max_tokens: 24,
        max_utterances: 0,
        pools_current,
    }
}

/// A network of random numbers over words or the shipped table, with its variables.
fn network(shape: &NetworkShape, kind: TokenKind) -> (Network, BTreeMap<String, Var>) {
    let table = table_of(kind).unwrap();
    let width = table.as_ref().map(|table| table.dimensions());
    let mut random = fastrand::Rng::with_seed(5);
    let mut variables = BTreeMap::new();
    for (name, dims, _) in parameters(shape, 9, width, 5) {
        let count = dims.iter().product();
        let numbers: Vec<f32> = (0..count).map(|_| random.f32() - 0.5).collect();
        let tensor = Tensor::from_vec(numbers, dims, &Device::Cpu).unwrap();
        variables.insert(name, Var::from_tensor(&tensor).unwrap());
    }
    let tensors = variables.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone()));
    (Network::new(shape.clone(), tensors.collect(), table), variables)
}

/// Our own turns, in the form that a variant reads.
fn turns(shape: &NetworkShape, kind: TokenKind) -> Vec<TurnTokens> {
    let tokens = ["is", "the", "pool", "heated", "?"].map(str::to_owned).to_vec();
    let reader = Reader::new(&Vocabulary { kind, tokens }, table_of(kind).unwrap());
    let dialogues: [&[&str]; 3] = [
        &["Hello there!", "How can I help?", "Is the pool heated?"],
        &["Thanks."],
        &[
            "I need a room.",
            "For how long would you like to stay with us, and how many are you?",
            "Two.",
        ],
    ];
    let turn = |texts: &&[&str]| {
        let sides = [Speaker::User, Speaker::System].into_iter().cycle();
        let cut = |text: &str| reader.cut(text).unwrap();
        CutTurn {
            utterances: sides.zip(texts.iter().map(|text| cut(text))).collect(),
            knowledge: vec![cut("The pool is heated in winter."), cut("Rooms are quiet.")],
            response: Some(cut("Yes, it is.")),
            depth: texts.len(),
        }
    };
    dialogues.iter().map(|texts| assemble(&turn(texts), shape, None)).collect()
}

#[test]
fn every_parameter_gets_a_gradient_in_every_variant() {
    for kind in [TokenKind::Words, TokenKind::Pieces] {
        for variant in VARIANTS {
            for pools_current in [false, true] {
                let shape = shape(variant, pools_current);
                let (network, variables) = network(&shape, kind);
                let turns = turns(&shape, kind);
                let logits = network.forward(&turns.iter().collect::<Vec<_>>(), None).unwrap();
                let weights: Vec<f32> = (0..15).map(|x| 1.0 + x as f32).collect();
                let weights = Tensor::from_vec(weights, (3, 5), &Device::Cpu).unwrap();
                let loss = (logits.sqr().unwrap() * weights).unwrap().sum_all().unwrap();
                let gradients = loss.backward().unwrap();
                for (name, variable) in &variables {
                    let gradient = gradients.get(variable).expect(name);
                    let most = gradient.abs().unwrap().flatten_all().unwrap().max(0).unwrap();
                    let most = most.to_scalar::<f32>().unwrap();
                    assert!(most > 0.0 && most.is_finite(), "{variant:?} {name}: {most}");
                }
            }
        }
    }
}

#[test]
fn a_turn_among_others_is_the_turn_alone() {
    for variant in VARIANTS {
        let shape = shape(variant, true);
        let (network, _) = network(&shape, TokenKind::Pieces);
        let turns = turns(&shape, TokenKind::Pieces);
        let all = network.forward(&turns.iter().collect::<Vec<_>>(), None).unwrap();
        for (turn, row) in turns.iter().zip(all.to_vec2::<f32>().unwrap()) {
            let alone = network.forward(&[turn], None).unwrap().to_vec2::<f32>().unwrap();
            for (one, among) in alone[0].iter().zip(row) {
                assert!((one - among).abs() < 1e-4, "{variant:?}: {one} and {among}");
            }
        }
    }
}

#[test]
fn what_a_variant_reads_changes_its_logits_and_nothing_else_does() {
    for variant in VARIANTS {
        let shape = shape(variant, true);
        let (network, _) = network(&shape, TokenKind::Words);
        let logits = |knowledge: &str, response: &str| {
            let tokens = ["pool", "heated"].map(str::to_owned).to_vec();
            let reader = Reader::new(&Vocabulary { kind: TokenKind::Words, tokens }, None);
            let cut = |text: &str| reader.cut(text).unwrap();
            let turn = CutTurn {
                utterances: vec![(Speaker::User, cut("a pool?"))],
                knowledge: if knowledge.is_empty() { Vec::new() } else { vec![cut(knowledge)] },
                response: Some(cut(response)),
                depth: 1,
            };
            let turn = assemble(&turn, &shape, None);
            network.forward(&[&turn], None).unwrap().to_vec2::<f32>().unwrap().remove(0)
        };
        let plain = logits("pool", "yes");
        assert!(plain.iter().all(|x| x.is_finite()));
        assert_eq!(plain != logits("heated", "yes"), variant.reads_knowledge(), "{variant:?}");
        assert_eq!(plain != logits("pool", "heated"), variant.reads_response(), "{variant:?}");
        assert!(logits("", "yes").iter().all(|x| x.is_finite()), "{variant:?}");
    }
}
