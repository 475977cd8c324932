//! Relabelling: changes or drops a label set, step by step.
//!
//!   labels ─▶ source labels joined by the separator ─▶ matched as a whole ─▶ replace, keep, drop, … ─▶ labels, or nothing
//!
//! Source: "relabel_config" of the Prometheus documentation.

use std::collections::BTreeMap;

use md5::{Digest, Md5};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

/// Bytes a compiled expression may take.
const REGEX_BYTES_MAX: usize = 4 << 20;

/// A label set being changed; an empty value means that the label is absent.
pub(crate) type Labels = BTreeMap<String, String>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    #[default]
    Replace,
    Keep,
    Drop,
    KeepEqual,
    DropEqual,
    LabelMap,
    LabelDrop,
    LabelKeep,
    HashMod,
    Lowercase,
    Uppercase,
}

/// One step as written in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RelabelConfig {
    #[serde(default)]
    source_labels: Vec<String>,
    #[serde(default = "semicolon")]
    separator: String,
    #[serde(default = "anything")]
    regex: String,
    target_label: Option<String>,
    #[serde(default = "first")]
    replacement: String,
    #[serde(default)]
    modulus: u64,
    #[serde(default)]
    action: Action,
}

fn semicolon() -> String {
    ";".to_owned()
}

fn anything() -> String {
    "(.*)".to_owned()
}

fn first() -> String {
    "$1".to_owned()
}

/// One step, compiled.
#[derive(Debug, Clone)]
pub(crate) struct Relabel {
    config: RelabelConfig,
    regex: Regex,
    target: String,
}

impl Relabel {
    /// Compiles steps in their order.
    ///
    /// # Errors
    /// An expression that does not compile, a target that is missing.
    pub(crate) fn all(configs: &[RelabelConfig]) -> Result<Vec<Self>, String> {
        configs.iter().map(Self::new).collect()
    }

    fn new(config: &RelabelConfig) -> Result<Self, String> {
        let build = |pattern: &str| RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).build();
        // The pattern alone first: `a)(b` must not become valid by the parentheses around it.
        let regex = build(&config.regex).and_then(|_| build(&format!("^(?s:{})$", config.regex)));
        let regex = regex.map_err(|error| format!("relabel config: regex {:?}: {error}", config.regex))?;
        let needs_target = matches!(
            config.action,
            Action::Replace
                | Action::KeepEqual
                | Action::DropEqual
                | Action::HashMod
                | Action::Lowercase
                | Action::Uppercase
        );
        if config.action == Action::HashMod && config.modulus == 0 {
            return Err("relabel config: hashmod needs a modulus above zero".to_owned());
        }
        let target = match &config.target_label {
            Some(target) if !target.is_empty() => target.clone(),
            _ if needs_target => {
                return Err(format!("relabel config: {:?} needs target_label", config.action));
            }
            _ => String::new(),
        };
        Ok(Self { config: config.clone(), regex, target })
    }

    /// Changes `labels`; false when they are to be dropped.
    fn apply(&self, labels: &mut Labels) -> bool {
        let config = &self.config;
        let of = |name: &str| labels.get(name).map_or("", String::as_str);
        let values: Vec<&str> = config.source_labels.iter().map(|name| of(name)).collect();
        let value = values.join(&config.separator);
        let matches = self.regex.is_match(&value);
        match config.action {
            Action::Keep => return matches,
            Action::Drop => return !matches,
            Action::KeepEqual => return of(&self.target) == value,
            Action::DropEqual => return of(&self.target) != value,
            Action::Replace => {
                let Some(found) = self.regex.captures(&value) else { return true };
                let (mut target, mut text) = (String::new(), String::new());
                found.expand(&braced(&self.target), &mut target);
                found.expand(&braced(&config.replacement), &mut text);
                set(labels, target, text);
            }
            Action::Lowercase => set(labels, self.target.clone(), value.to_lowercase()),
            Action::Uppercase => set(labels, self.target.clone(), value.to_uppercase()),
            Action::HashMod => set(labels, self.target.clone(), (hash(&value) % config.modulus).to_string()),
            Action::LabelMap => {
                let found: Vec<(String, String)> = labels
                    .iter()
                    .filter_map(|(name, value)| {
                        let mut mapped = String::new();
                        self.regex.captures(name)?.expand(&braced(&config.replacement), &mut mapped);
                        Some((mapped, value.clone()))
                    })
                    .collect();
                found.into_iter().for_each(|(name, value)| set(labels, name, value));
            }
            Action::LabelDrop => labels.retain(|name, _| !self.regex.is_match(name)),
            Action::LabelKeep => labels.retain(|name, _| self.regex.is_match(name)),
        }
        true
    }
}

/// Hash that spreads targets over several servers: the last eight bytes of MD5, as in Prometheus.
fn hash(value: &str) -> u64 {
    let digest: [u8; 16] = Md5::digest(value.as_bytes()).into();
    u128::from_be_bytes(digest) as u64
}

/// Braces group references: in Prometheus `$1x` is group 1 and an `x`; the library would read a group `1x`.
fn braced(template: &str) -> String {
    let mut out = String::with_capacity(template.len() + 4);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        out.push('$');
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, tail) = after.split_at(digits);
        if number.is_empty() {
            rest = after;
        } else {
            out.push_str(&format!("{{{number}}}"));
            rest = tail;
        }
    }
    out + rest
}

fn set(labels: &mut Labels, name: String, value: String) {
    if value.is_empty() {
        labels.remove(&name);
    } else if !name.is_empty() {
        labels.insert(name, value);
    }
}

/// Applies all steps; `None` when one of them drops the labels.
pub(crate) fn relabel(mut labels: Labels, steps: &[Relabel]) -> Option<Labels> {
    steps.iter().all(|step| step.apply(&mut labels)).then_some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(yaml: &str, labels: &[(&str, &str)]) -> Option<String> {
        let configs: Vec<RelabelConfig> = serde_saphyr::from_str(yaml).unwrap();
        let labels = labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let left = relabel(labels, &Relabel::all(&configs).unwrap())?;
        Some(left.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn each_action() {
        let labels = [("__address__", "host:9100"), ("env", "Prod"), ("a", "x"), ("b", "x")];
        for (yaml, left) in [
            (
                "[{source_labels: [__address__], regex: '(.+):.*', target_label: instance}]",
                Some("__address__=host:9100,a=x,b=x,env=Prod,instance=host"),
            ),
            (
                "[{source_labels: [a, env], separator: '-', target_label: both}]",
                Some("__address__=host:9100,a=x,b=x,both=x-Prod,env=Prod"),
            ),
            ("[{source_labels: [env], regex: 'Pro', action: keep}]", None),
            ("[{source_labels: [env], regex: 'Pro.', action: drop}]", None),
            (
                "[{source_labels: [a], target_label: b, action: keepequal}]",
                Some("__address__=host:9100,a=x,b=x,env=Prod"),
            ),
            ("[{source_labels: [a], target_label: b, action: dropequal}]", None),
            (
                "[{source_labels: [env], target_label: env, action: lowercase}]",
                Some("__address__=host:9100,a=x,b=x,env=prod"),
            ),
            (
                "[{regex: '(.)', replacement: 'long_$1', action: labelmap}, {regex: 'a|b|__.*', action: labeldrop}]",
                Some("env=Prod,long_a=x,long_b=x"),
            ),
            ("[{regex: 'env', action: labelkeep}]", Some("env=Prod")),
            // 976 is Prometheus' result for `baz` and 1000.
            (
                "[{replacement: baz, target_label: env}, {source_labels: [env], target_label: shard, modulus: 1000, action: hashmod}]",
                Some("__address__=host:9100,a=x,b=x,env=baz,shard=976"),
            ),
            (
                "[{source_labels: [a], regex: '(x)', target_label: b, replacement: '$1y'}, {target_label: env, replacement: ''}]",
                Some("__address__=host:9100,a=x,b=xy"),
            ),
        ] {
            assert_eq!(run(yaml, &labels).as_deref(), left, "{yaml}");
        }
    }

    #[test]
    fn rejects_malformed_input() {
        let refused = |yaml: &str| match serde_saphyr::from_str::<Vec<RelabelConfig>>(yaml) {
            Ok(configs) => Relabel::all(&configs).is_err(),
            Err(_) => true,
        };
        for yaml in [
            "[{regex: '('}]",
            "[{regex: 'a)(b', action: keep}]",
            "[{action: replace}]",
            "[{action: hashmod, target_label: shard}]",
            "[{action: hashmod, modulus: 8}]",
            "[{what: 1}]",
        ] {
            assert!(refused(yaml), "{yaml}");
        }
    }
}
