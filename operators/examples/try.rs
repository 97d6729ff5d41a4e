use std::sync::Arc; use std::time::Instant; use std::io::BufRead;
use turnstream_operators::{*, flow::*, language::Lexicon, knowledge::*, join::Pair, linking::link};
use turnstream_schemas::*;
fn main() {
    let mut facts = Vec::new();
    for line in std::io::BufReader::new(std::fs::File::open("/tmp/cn.tsv").unwrap()).lines() {
        let line = line.unwrap(); let p: Vec<&str> = line.split('\t').collect();
        let mut f = ImportedFact::new(p[1], p[0], p[2], p[3].parse().unwrap()); f.source="conceptnet".into(); facts.push(f);
    }
    let graph = Graph::from_facts(facts);
    let lexicon = Lexicon::english();
    let quiet = std::env::args().nth(2).is_some();
    let mut t = [0u128; 7]; let mut n = 0u32; let mut worst=[0u128;7]; let mut yes=0; let mut withf=0;
    for (d, line) in std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap().lines().enumerate() {
        let lines: Vec<&str> = line.split('\t').collect();
        let mut dialogue: Vec<Utterance> = Vec::new();
        for (at, text) in lines.iter().enumerate() {
            let speaker = if at % 2 == 0 { Speaker::User } else { Speaker::System };
            dialogue.push(Utterance { turn_id: TurnId(format!("t{at}")), speaker, text: (*text).into() });
            if at % 2 == 1 { continue; }
            if dialogue.len() > 12 { dialogue.remove(0); }
            let context = Arc::new(TurnContext { request: RequestId{partition:0,generation:0,offset:at as i64}, input: InputId{topic:"t".into(),partition:0,offset:at as i64}, scope: Scope::new(None,&format!("{d}")), turn: Turn::new("c",Speaker::User,text), turn_id: TurnId(format!("t{at}")), event_time: EventTime(0), dialogue: dialogue.clone(), recalled: vec![] });
            n += 1;
            let gc = gate::GateConfig::default();
            let s = Instant::now();
            let mentions: Arc<[_]> = link(&graph, lexicon, context.dialogue.iter().map(|u| &*u.text), &gc.linking).into();
            let g = gate::decide(&context, &mentions, lexicon, &gc);
            let e=s.elapsed().as_nanos(); t[0]+=e; worst[0]=worst[0].max(e);
            yes += u32::from(g.retrieve);
            let turn = Gated{context: context.clone(), mentions, gate: g.clone(), progress: Progress::default()};
            if !quiet { println!("\nU: {text}\n   gate {:.2} {} {:?}", g.score.get(), g.retrieve, g.features.iter().filter(|(k,_)| *k!="bias").map(|(k,v)| format!("{k} {:.1}", v.get())).collect::<Vec<_>>()); }
            let s = Instant::now();
            let (queries, thought) = query_production::produce(&turn,&graph,lexicon,&Default::default());
            let e=s.elapsed().as_nanos(); t[1]+=e; worst[1]=worst[1].max(e);
            let s = Instant::now();
            let (topics, th2) = topic_planning::plan(&turn,&graph,lexicon,&Default::default());
            let e=s.elapsed().as_nanos(); t[2]+=e; worst[2]=worst[2].max(e);
            let pair = Pair{queried: Queried{turn: turn.clone(), queries, thought}, planned: Planned{turn: turn.clone(), topics, thought: th2}};
            let s = Instant::now();
            let demand = cross_revision::revise(&pair,&graph,lexicon,&Default::default());
            let e=s.elapsed().as_nanos(); t[3]+=e; worst[3]=worst[3].max(e);
            let s = Instant::now();
            let c = fact_retrieval::retrieve(&turn,&demand,(&graph,lexicon),&Default::default());
            let e=s.elapsed().as_nanos(); t[4]+=e; worst[4]=worst[4].max(e);
            let s = Instant::now();
            let ev = fact_selection::select(&c,&Default::default());
            let e=s.elapsed().as_nanos(); t[5]+=e; worst[5]=worst[5].max(e);
            if !quiet { println!("   EQ {:?}\n   IQ {:?}\n   MT {:?}\n   ET {:?}", demand.queries.explicit.iter().map(|q| format!("{} {:.2}",q.concept,q.weight.get())).collect::<Vec<_>>(), demand.queries.implicit.iter().map(|q| format!("{} {:.2} <- {:?}",q.concept,q.weight.get(),q.because)).collect::<Vec<_>>(), demand.topics.maintained.iter().map(|q| format!("{} {:.2}",q.concept,q.weight.get())).collect::<Vec<_>>(), demand.topics.extended.iter().map(|q| format!("{} {:.2} <- {:?}",q.concept,q.weight.get(),q.because)).collect::<Vec<_>>());
              println!("   rev {:?}", demand.revisions.iter().map(|r| format!("{:?} {} ({})", r.kind, r.what, r.why)).collect::<Vec<_>>());
              println!("   F {} U {}", c.foreseen.len(), c.unforeseen.len());
              for e in ev.iter().filter(|e| e.selected).take(8) { println!("     {:.2} {:?} {}", e.relevance.get(), e.set.unwrap(), e.text); } }
            let yes = g.retrieve;
            let gr = Grounded{turn, demand: if yes {demand} else {Default::default()}, plan: Plan::default(), evidence: if yes {ev} else {vec![]}, knowledge: Default::default()};
            let s = Instant::now();
            let draft = generation::generate(&gr,&graph,&Default::default());
            let e=s.elapsed().as_nanos(); t[6]+=e; worst[6]=worst[6].max(e);
            withf += u32::from(draft.confidence.is_some());
            println!("{}B: {}", if quiet {format!("U: {text}\n")} else {String::new()}, draft.text);
        }
    }
    eprintln!("{n} turns, retrieve {yes}, with facts {withf}");
    for (i,name) in ["gate+link","query","topic","revise","retrieve","select","generate"].iter().enumerate() { eprintln!("{name}: mean {} us, worst {} us", t[i]/1000/u128::from(n), worst[i]/1000); }
}
