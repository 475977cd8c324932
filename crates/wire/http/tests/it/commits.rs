//! One commit with its parts in every model.

use serde_json::{Value, json};

use crate::client::Server;

/// A commit over all models; returns its number.
async fn order(server: &Server, sql: &str, n: i64) -> u64 {
    let body = json!({ "operations": [
        { "append": { "store": "shop", "events": [{ "type": "OrderPlaced", "tags": ["order:o1"], "data": { "n": n } }] } },
        { "sql": { "sql": sql } },
        { "documents": { "collection": "orders", "update": { "filter": { "_id": "o1" }, "update": { "$set": { "n": n } }, "upsert": true } } },
        { "samples": { "series": [{ "labels": { "__name__": "ropes_sold", "shop": "<b>" }, "samples": [[1000, n], [2000, 0.5]] }] } },
    ] });
    server.post("/v1/transactions", body).await.ok()["seq"].as_u64().unwrap()
}

async fn commit(server: &Server, seq: u64) -> Value {
    server.get(&format!("/v1/commits/{seq}")).await.ok()
}

#[tokio::test]
async fn commit_has_its_events_documents_rows_and_samples_with_the_state_before() {
    use ropewalk::tables::{ColumnDef, TableDef, Type};
    let server = Server::start().await;
    let table = TableDef::new("stock")
        .column(ColumnDef::new("sku", Type::TEXT))
        .column(ColumnDef::new("n", Type::INT8));
    let mut tx = server.service.database().begin();
    tx.tables().create_table(table.primary_key(["sku"])).unwrap();
    tx.commit().unwrap();
    let first = order(&server, "INSERT INTO stock VALUES ('rope', 7)", 1).await;
    let second = order(&server, "UPDATE stock SET n = NULL WHERE sku = 'rope'", 2).await;

    let found = commit(&server, first).await;
    assert_eq!((&found["seq"], &found["truncated"]), (&json!(first), &json!(false)));
    assert_eq!(found["appends"][0]["store"], "shop");
    assert_eq!(found["appends"][0]["events"][0]["data"], json!({ "n": 1 }));
    let row =
        json!({ "table": "stock", "change": "insert", "before": null, "after": { "sku": "rope", "n": "7" } });
    assert_eq!(found["rows"], json!([row]));
    assert_eq!(found["documents"][0]["change"]["operationType"], "insert");
    assert_eq!(found["documents"][0]["before"], Value::Null);
    let labels = json!({ "__name__": "ropes_sold", "shop": "<b>" });
    let samples = json!([[1000, 1], [2000, 0.5]]);
    assert_eq!(
        found["samples"],
        json!([{ "store": "default", "labels": labels, "count": 2, "samples": samples }])
    );

    let found = commit(&server, second).await;
    let (before, after) = (json!({ "sku": "rope", "n": "7" }), json!({ "sku": "rope", "n": null }));
    let row = json!({ "table": "stock", "change": "update", "before": before, "after": after });
    assert_eq!(found["rows"], json!([row]));
    assert!(found["others"].as_array().unwrap().iter().any(|part| part["model"] == "documents"), "{found}");
    assert_eq!(found["documents"][0]["before"], json!({ "_id": "o1", "n": 1 }));
    assert_eq!(found["documents"][0]["change"]["updateDescription"]["updatedFields"], json!({ "n": 2 }));
}

#[tokio::test]
async fn commit_with_many_parts_is_truncated() {
    let server = Server::start().await;
    let series: Vec<Value> = (0..1_001)
        .map(|n| json!({ "labels": { "__name__": "x", "n": n.to_string() }, "samples": [[1, n]] }))
        .collect();
    let body = json!({ "operations": [{ "samples": { "series": series } }] });
    let seq = server.post("/v1/transactions", body).await.ok()["seq"].as_u64().unwrap();
    let found = commit(&server, seq).await;
    assert_eq!((found["samples"].as_array().unwrap().len(), &found["truncated"]), (1_000, &json!(true)));
    // Documents and rows are cut while they are built: by their number, and by their bytes.
    let large = "y".repeat(100_000);
    for (count, text) in [(1_001, "y"), (60, large.as_str())] {
        let insert = json!({ "documents": { "collection": "c", "insert": { "text": text } } });
        let body = json!({ "operations": vec![insert; count] });
        let seq = server.post("/v1/transactions", body).await.ok()["seq"].as_u64().unwrap();
        let found = commit(&server, seq).await;
        let shown = found["documents"].as_array().unwrap().len();
        assert!((20..=1_000).contains(&shown) && shown < count && found["truncated"] == true, "{shown}");
    }
    let text = "x".repeat(100_000);
    let events: Vec<Value> = (0..60).map(|_| json!({ "type": "A", "data": text })).collect();
    let seq = server.append("s", json!(events)).await["seq"].as_u64().unwrap();
    let found = commit(&server, seq).await;
    let shown = found["appends"][0]["events"].as_array().unwrap().len();
    assert!((40..60).contains(&shown) && found["truncated"] == true, "{shown}");
}

#[tokio::test]
async fn commit_that_does_not_exist_is_not_found() {
    let server = Server::start().await;
    let newest = server.append("s", json!([{ "type": "A" }])).await["seq"].as_u64().unwrap();
    assert_eq!(commit(&server, newest).await["rows"], json!([]));
    for seq in [0, newest + 1, u64::MAX] {
        server.get(&format!("/v1/commits/{seq}")).await.refused(404, "not_found");
    }
    server.get("/v1/commits/x").await.refused(400, "invalid_argument");
}
