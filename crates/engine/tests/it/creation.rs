//! A database that was just created, before its first checkpoint.

use super::*;

#[test]
fn database_without_keyspaces_reopens_with_its_first_commits() {
    for commits in 0..3 {
        let (disk, _, env) = machine(11 + commits);
        let engine = open(&env, manual()).unwrap();
        for _ in 0..commits {
            engine.commit(vec![Box::new(KvBatch::new())], Durability::Sync).unwrap();
        }
        std::mem::forget(engine);
        disk.crash();
        let engine = open(&env, manual()).unwrap();
        assert_eq!(engine.seq(), Seq(commits));
    }
}
