//! A store of millions of events: what writing, opening and reading it cost in time and memory.
//! `cargo run --release -p ropewalk --example big -- DIR write|read`
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing)]

use ropewalk::*;
use std::time::Instant;
fn rss() -> String {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .filter(|l| l.starts_with("VmRSS") || l.starts_with("RssAnon") || l.starts_with("VmHWM"))
        .map(|l| l.replace('\t', " "))
        .collect::<Vec<_>>()
        .join(" ")
}
fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let mode = std::env::args().nth(2).unwrap();
    let budget: u64 = 256 << 20;
    let t = Instant::now();
    let db = Options::new().memory_budget(budget).open(&dir).unwrap();
    println!("open {:?} {}", t.elapsed(), rss());
    let store = db.events("s").unwrap();
    if mode == "write" {
        let t = Instant::now();
        for b in 0..10_000u64 {
            let evs: Vec<_> = (0..1000)
                .map(|i| {
                    let i = b * 1000 + i;
                    Event::new(["A", "B", "C", "D", "E"][(i % 5) as usize])
                        .tag(format!("id:{i}"))
                        .tag(format!("acct:{}", i % 1000))
                        .tag(format!("region:{}", i % 50))
                        .data(vec![i as u8; 100])
                })
                .collect();
            store.append(&evs, None).unwrap();
            if b % 1000 == 999 {
                let s = db.stats();
                println!(
                    "{} M {:.0} ev/s {} frozen {} write_bytes {}",
                    (b + 1) / 1000,
                    (b + 1) as f64 * 1000.0 / t.elapsed().as_secs_f64(),
                    rss(),
                    s.frozen,
                    s.write_bytes
                );
            }
        }
        std::process::abort();
    }
    println!("head {:?}", store.head());
    for back in [false, true] {
        let t = Instant::now();
        let opts = ReadOptions { backwards: back, ..Default::default() };
        let mut sum = 0usize;
        let mut c = 0u64;
        if mode == "reader" {
            let mut r = store.read(&Query::all(), opts).unwrap();
            loop {
                let n = r
                    .visit(10000, |e| {
                        c += 1;
                        sum += e.event_type().len() + e.data().len() + e.tags().map(str::len).sum::<usize>();
                    })
                    .unwrap();
                if n == 0 {
                    break;
                }
            }
        } else {
            store
                .scan(&Query::all(), opts, |s| {
                    while let Some(e) = s.next()? {
                        c += 1;
                        sum += e.event_type().len() + e.data().len() + e.tags().map(str::len).sum::<usize>();
                    }
                    Ok(())
                })
                .unwrap();
        }
        println!(
            "read back={back}: {:.2} M ev/s ({c} {sum}) {}",
            c as f64 / t.elapsed().as_secs_f64() / 1e6,
            rss()
        );
    }
    let t = Instant::now();
    println!("count acct:7 {} {:?}", store.count(&Query::from_tags(["acct:7"])).unwrap(), t.elapsed());
    let t = Instant::now();
    println!("count A {} {:?}", store.count(&Query::from_types(["A"])).unwrap(), t.elapsed());
    let t = Instant::now();
    let mut n = 0;
    store
        .scan(&Query::from_tags(["acct:7"]), ReadOptions::default(), |s| {
            while s.next()?.is_some() {
                n += 1;
            }
            Ok(())
        })
        .unwrap();
    println!("read acct:7 {n} {:?}", t.elapsed());
    let t = Instant::now();
    println!(
        "last id {:?} {:?}",
        store.read_last(&Query::from_tags(["id:5000000"])).unwrap().map(|e| e.position),
        t.elapsed()
    );
    let t = Instant::now();
    println!("miss {:?} {:?}", store.exists(&Query::from_types(["Z"]), None).unwrap(), t.elapsed());
}
