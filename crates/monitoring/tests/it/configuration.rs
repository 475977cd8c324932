//! The file `prometheus.config`.

use ropewalk_monitoring::Config;

#[test]
fn rejects_invalid_configurations() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("prometheus.yml");
    for (text, why) in [
        ("remote_write: []", "remote_write"),
        ("scrape_configs: [{job_name: a, kubernetes_sd_configs: []}]", "kubernetes_sd_configs"),
        ("scrape_configs: [{job_name: a}, {job_name: a}]", "multiple scrape configs"),
        ("scrape_configs: [{job_name: a, scrape_interval: 1s, scrape_timeout: 2s}]", "scrape_timeout"),
        ("scrape_configs: [{job_name: a, scheme: ftp}]", "ftp"),
        ("scrape_configs: [{job_name: a, relabel_configs: [{action: hashmod}]}]", "hashmod"),
        ("rule_files: [nothing.yml]", "nothing.yml"),
        ("global: {scrape_interval: often}", "often"),
        ("alerting: {alertmanagers: [{api_version: v1}]}", "v2"),
        (": [", "prometheus.yml"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Config::read(&path).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
