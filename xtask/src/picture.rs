//! `cargo xtask picture`: draws the README's picture from what pmuscope shows of the demo's
//! recording: `stat`, `top` and the page of `report`.

use std::{
    fs,
    io::{Read as _, Write as _},
    num::NonZero,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use vt100::Parser;

use self::svg::Svg;
use crate::{build, debian, demo::recording, sh};

mod svg;

/// The path of the picture in the workspace.
const PICTURE: &str = "docs/picture.svg";

/// Size of the terminals in characters.
const COLUMNS: NonZero<u16> = NonZero::new(80).unwrap();
const LINES: NonZero<u16> = NonZero::new(24).unwrap();

/// Width and height of the browser's window in pixels.
const PAGE: [u32; 2] = [1000, 1340];

/// Options of `stat`: metrics that fit one table, and a window in which the batch job runs.
const STAT: &str = "--metric ipc,cpu_wait_ratio,cmem_read_bandwidth";
const WINDOW: &str = "--from 3.6s --to 4.5s --quiet";

/// Keys for `top`, each pressed when the screen shows the text before it. They pause `top` while
/// the batch job runs, and then end it.
const KEYS: &[(&str, &[u8])] = &[("after 4.855 s", b"p"), ("paused", b"q")];

pub(crate) fn run() -> Result<()> {
    let missing = debian::missing(&[("chromium", "chromium")]);
    debian::install(&missing, "the picture shows a page")?;
    let binary = build::run(&build::Args::default())?;
    let mut svg = Svg::new();
    let words = format!("stat {STAT}");
    svg.add_terminal(&words, &stat(&binary, &words)?);
    svg.add_terminal("top", &top(&binary)?);
    svg.add_image("report", PAGE, &page(&binary)?);
    fs::write(sh::root().join(PICTURE), svg.finish())
        .with_context(|| format!("cannot write {PICTURE}"))
}

/// The tables of containers and of the first socket's traffic that `stat` prints.
fn stat(binary: &Path, words: &str) -> Result<Parser> {
    let mut command = Command::new(binary);
    command.args(words.split(' ')).args(WINDOW.split(' '));
    command.arg("--replay").arg(recording());
    let output = command.env("COLUMNS", COLUMNS.to_string()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let mut tables = text.split("\n\n");
    let rows = tables.next().context("stat printed no table")?;
    let traffic = tables.find(|table| table.contains("_apportioned"));
    let traffic = traffic.context("stat printed no traffic of containers")?;
    let traffic = traffic
        .lines()
        .take_while(|line| !line.contains("socket 1"));
    let lines = rows.lines().chain([" ...", ""]).chain(traffic);
    let lines: Vec<&str> = lines.chain([" ..."]).collect();
    let mut screen = Parser::new(NonZero::try_from(u16::try_from(lines.len())?)?, COLUMNS, 0);
    screen.process(lines.join("\r\n").as_bytes());
    Ok(screen)
}

/// The screen of `top` when the last of [`KEYS`] is pressed.
fn top(binary: &Path) -> Result<Parser> {
    // The program `script` of util-linux gives `top` a terminal.
    let command = format!(
        "stty rows {LINES} cols {COLUMNS}; exec {} top --replay {}",
        binary.display(),
        recording().display()
    );
    let mut script = Command::new("script")
        .args(["--quiet", "--command", &command, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start script, of util-linux")?;
    let (stdin, stdout) = (script.stdin.take(), script.stdout.take());
    let (mut keyboard, mut output) = stdin.zip(stdout).context("they are piped")?;
    let mut screen = Parser::new(LINES, COLUMNS, 0);
    let mut bytes = [0; 4096];
    for (shown, keys) in KEYS {
        while !screen.screen().contents().contains(shown) {
            let read = output.read(&mut bytes)?;
            anyhow::ensure!(read > 0, "top ended before it showed {shown:?}");
            screen.process(&bytes[..read]);
        }
        keyboard.write_all(keys)?;
    }
    script.wait()?;
    Ok(screen)
}

/// A picture of the page, as PNG in base64.
fn page(binary: &Path) -> Result<String> {
    let directory = sh::target_dir().join("picture");
    fs::create_dir_all(&directory)?;
    let [page, picture] = ["page.html", "page.png"].map(|name| directory.join(name));
    let mut command = Command::new(binary);
    command
        .arg("report")
        .arg(recording())
        .arg("--output")
        .arg(&page);
    sh::check(&mut command)?;
    let [width, height] = PAGE;
    sh::check(
        Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--hide-scrollbars"])
            // The page draws its plots only after its layout.
            .arg("--virtual-time-budget=5000")
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--screenshot={}", picture.display()))
            .arg(format!("file://{}", page.display())),
    )?;
    Ok(BASE64_STANDARD.encode(fs::read(picture)?))
}
