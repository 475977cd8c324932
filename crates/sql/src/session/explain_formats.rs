//! EXPLAIN for programs: the tree that the lines draw, in the formats of PostgreSQL.
//!
//! ```text
//! lines, each level two spaces deeper ─▶ nodes ─▶ JSON, YAML or XML: one row
//! ```

use sqlparser::ast;

use crate::types::json::quoted;

/// Spaces of each level.
const INDENT: usize = 2;

/// Form of a result of EXPLAIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A row for each line.
    Text,
    Json,
    Yaml,
    Xml,
}

/// A step of a plan, and those that it reads from.
struct Node<'a> {
    text: &'a str,
    parts: Vec<Node<'a>>,
}

impl Format {
    /// The format among the options of EXPLAIN. `None` if it is another word.
    pub(crate) fn of(options: &[ast::UtilityOption]) -> Option<Self> {
        let mut format = Self::Text;
        for option in options.iter().filter(|option| option.name.value.eq_ignore_ascii_case("format")) {
            let given = option.arg.as_ref().map(ToString::to_string).unwrap_or_default();
            format = match given.trim_matches('\'').to_ascii_lowercase().as_str() {
                "text" => Self::Text,
                "json" => Self::Json,
                "yaml" => Self::Yaml,
                "xml" => Self::Xml,
                _ => return None,
            };
        }
        Some(format)
    }

    /// The rows of a plan with these lines.
    pub(crate) fn rows(self, lines: Vec<String>) -> Vec<String> {
        let mut out = String::new();
        let (plan, summary) = match self {
            Self::Text => return lines,
            _ => tree(&lines),
        };
        match self {
            Self::Text => {}
            Self::Json => {
                out.push_str("[\n  {\n    \"Plan\": ");
                plan.write_json(&mut out, 2);
                if let Some(summary) = summary {
                    out.push_str(&format!(",\n    \"Summary\": {}", quoted(summary)));
                }
                out.push_str("\n  }\n]");
            }
            Self::Yaml => {
                out.push_str("- Plan:");
                plan.write_yaml(&mut out, 2, "");
                if let Some(summary) = summary {
                    out.push_str(&format!("\n  Summary: {}", quoted(summary)));
                }
            }
            Self::Xml => {
                out.push_str("<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n  <Query>");
                plan.write_xml(&mut out, 2);
                if let Some(summary) = summary {
                    out.push_str(&format!("\n    <Summary>{}</Summary>", escaped(summary)));
                }
                out.push_str("\n  </Query>\n</explain>");
            }
        }
        vec![out]
    }
}

/// The node of the first line, which has all others below it, and the line with rows and time of ANALYZE.
fn tree(lines: &[String]) -> (Node<'_>, Option<&str>) {
    let level = |line: &str| (line.len() - line.trim_start_matches(' ').len()) / INDENT;
    let is_summary = |line: &str| line.starts_with("Rows: ");
    let summary = lines.iter().find(|line| is_summary(line)).map(String::as_str);
    // The nodes from the root to the newest one, with their levels.
    let mut path: Vec<(usize, Node<'_>)> = Vec::new();
    let close = |path: &mut Vec<(usize, Node<'_>)>| {
        if let (Some((_, last)), Some((_, above))) = (path.pop(), path.last_mut()) {
            above.parts.push(last);
        }
    };
    for line in lines.iter().filter(|line| !is_summary(line)) {
        let at = level(line);
        while path.len() > 1 && path.last().is_some_and(|(known, _)| *known >= at) {
            close(&mut path);
        }
        path.push((at, Node { text: line.trim(), parts: Vec::new() }));
    }
    while path.len() > 1 {
        close(&mut path);
    }
    let root = path.pop().map(|(_, node)| node);
    (root.unwrap_or(Node { text: "Result", parts: Vec::new() }), summary)
}

impl Node<'_> {
    fn write_json(&self, out: &mut String, level: usize) {
        let pad = " ".repeat(INDENT * level);
        out.push_str(&format!("{{\n{pad}  \"Node Type\": {}", quoted(self.text)));
        for (place, part) in self.parts.iter().enumerate() {
            let list = if place == 0 { format!("{pad}  \"Plans\": [\n") } else { String::new() };
            out.push_str(&format!(",\n{list}{pad}    "));
            part.write_json(out, level + 2);
        }
        if !self.parts.is_empty() {
            out.push_str(&format!("\n{pad}  ]"));
        }
        out.push_str(&format!("\n{pad}}}"));
    }

    /// `item` begins the first line: a dash in a list.
    fn write_yaml(&self, out: &mut String, level: usize, item: &str) {
        let pad = " ".repeat(INDENT * level);
        let begin = if item.is_empty() { pad.clone() } else { " ".repeat(INDENT * (level - 1)) + item };
        out.push_str(&format!("\n{begin}Node Type: {}", quoted(self.text)));
        if !self.parts.is_empty() {
            out.push_str(&format!("\n{pad}Plans:"));
        }
        for part in &self.parts {
            part.write_yaml(out, level + 2, "- ");
        }
    }

    fn write_xml(&self, out: &mut String, level: usize) {
        let pad = " ".repeat(INDENT * level);
        out.push_str(&format!("\n{pad}<Plan>\n{pad}  <Node-Type>{}</Node-Type>", escaped(self.text)));
        if !self.parts.is_empty() {
            out.push_str(&format!("\n{pad}  <Plans>"));
            self.parts.iter().for_each(|part| part.write_xml(out, level + 2));
            out.push_str(&format!("\n{pad}  </Plans>"));
        }
        out.push_str(&format!("\n{pad}</Plan>"));
    }
}

/// A text within XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<String> {
        let lines = [
            "Limit",
            "  Sort (1 keys)",
            "    a < \"b\"",
            "  Filter",
            "Subquery 1",
            "  t Get",
            "Rows: 2, time: 1 ms",
        ];
        lines.map(str::to_owned).to_vec()
    }

    #[test]
    fn lines_become_a_tree_in_each_format() {
        assert_eq!(Format::Text.rows(lines()), lines());
        let json = r#"[
  {
    "Plan": {
      "Node Type": "Limit",
      "Plans": [
        {
          "Node Type": "Sort (1 keys)",
          "Plans": [
            {
              "Node Type": "a < \"b\""
            }
          ]
        },
        {
          "Node Type": "Filter"
        },
        {
          "Node Type": "Subquery 1",
          "Plans": [
            {
              "Node Type": "t Get"
            }
          ]
        }
      ]
    },
    "Summary": "Rows: 2, time: 1 ms"
  }
]"#;
        assert_eq!(Format::Json.rows(lines()), [json]);
        let yaml = r#"- Plan:
    Node Type: "Limit"
    Plans:
      - Node Type: "Sort (1 keys)"
        Plans:
          - Node Type: "a < \"b\""
      - Node Type: "Filter"
      - Node Type: "Subquery 1"
        Plans:
          - Node Type: "t Get"
  Summary: "Rows: 2, time: 1 ms""#;
        assert_eq!(Format::Yaml.rows(lines()), [yaml]);
        let xml = r#"<explain xmlns="http://www.postgresql.org/2009/explain">
  <Query>
    <Plan>
      <Node-Type>Limit</Node-Type>
      <Plans>
        <Plan>
          <Node-Type>Sort (1 keys)</Node-Type>
          <Plans>
            <Plan>
              <Node-Type>a &lt; "b"</Node-Type>
            </Plan>
          </Plans>
        </Plan>
        <Plan>
          <Node-Type>Filter</Node-Type>
        </Plan>
        <Plan>
          <Node-Type>Subquery 1</Node-Type>
          <Plans>
            <Plan>
              <Node-Type>t Get</Node-Type>
            </Plan>
          </Plans>
        </Plan>
      </Plans>
    </Plan>
    <Summary>Rows: 2, time: 1 ms</Summary>
  </Query>
</explain>"#;
        assert_eq!(Format::Xml.rows(lines()), [xml]);
        assert_eq!(Format::Json.rows(Vec::new()).len(), 1);
    }
}
