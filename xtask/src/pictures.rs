//! `pictures`: draws the README's pictures of a terminal from the output of real commands.
//!
//! Each picture shows commands that run one after another in a shell, and their output. The variable CLICOLOR_FORCE
//! makes the commands print colours. Long series of similar lines are shortened. Apart from this, the output is
//! unchanged.

mod scene;

use std::fs;
use std::path::Path;

use anstyle_svg::Term;
use anyhow::{Context, Result};

use crate::{data, workspace};
use scene::{Picture, PictureCommand};

/// The directory of the pictures.
const FOLDER: &str = "docs/pictures";

const SCENES: &[Picture] = &[
    Picture {
        name: "slow-subscriber",
        steps: &[
            PictureCommand::background("dunlin dev", 1_000).with_output(),
            PictureCommand::background("yes tick | dunlin pub ticks", 500),
            PictureCommand::interrupted("dunlin sub ticks --sleep 1ms --on-gap newest", 2_500),
        ],
    },
    Picture {
        name: "work-queue",
        steps: &[
            PictureCommand::background("dunlin dev", 1_000).hidden(),
            PictureCommand::until_exit(
                "dunlin pub jobs 'resize a.png' 'resize b.png' 'no such job' 'resize c.png'",
            ),
            PictureCommand::until_exit(
                "dunlin sub jobs --group crew --work --from earliest --attempts 2 --idle 2s -- grep resize",
            ),
            PictureCommand::until_exit("dunlin sub dead.jobs --from earliest --count 1"),
            PictureCommand::until_exit("dunlin topics describe jobs"),
        ],
    },
    Picture {
        name: "cluster",
        steps: &[
            PictureCommand::background("dunlin dev --nodes 3 | tee /tmp/nodes.txt", 8_000).with_output(),
            PictureCommand::until_exit(
                "dunlin topics create orders; dunlin pub orders one two; dunlin topics move orders 2",
            ),
            PictureCommand::background(
                "sleep 2; kill -9 $(awk '$1 == 2 { print $2 }' /tmp/nodes.txt); sleep 3; dunlin pub orders three",
                100,
            ),
            PictureCommand::interrupted("dunlin sub orders --from earliest", 8_000),
            PictureCommand::until_exit("dunlin topics list"),
        ],
    },
    Picture {
        name: "demo",
        steps: &[PictureCommand::until_exit("dunlin demo --data data --speed max --once | tail -n 25")],
    },
];

/// Pairs of colours: a standard colour of a terminal, and the more readable colour that replaces it in the pictures.
const COLOURS: [(&str, &str); 7] = [
    ("fill: #000000", "fill: #1e2127"),
    ("fill: #AAAAAA", "fill: #d0d4dc"),
    ("fill: #00AAAA", "fill: #56b6c2"),
    ("fill: #00AA00", "fill: #98c379"),
    ("fill: #AA0000", "fill: #e06c75"),
    ("fill: #AA5500", "fill: #e5c07b"),
    ("opacity: 0.4", "opacity: 0.6"),
];

/// Runs the commands of every picture, and writes the picture's file.
pub fn run() -> Result<()> {
    data::run()?;
    let dunlin = workspace::build_dunlin()?;
    let programs =
        Path::new(dunlin.get_program()).parent().context("the path of the dunlin program has no folder")?;
    let folder = workspace::root().join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {FOLDER}"))?;
    for scene in SCENES {
        let text = scene
            .play(programs)
            .with_context(|| format!("cannot make the pictures of scene {}", scene.name))?;
        let path = folder.join(format!("{}.svg", scene.name));
        fs::write(&path, render(&text)).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{FOLDER}/{}.svg", scene.name);
    }
    Ok(())
}

fn render(text: &str) -> String {
    let svg = Term::new().render_svg(text);
    COLOURS.iter().fold(svg, |svg, (old, new)| svg.replacen(old, new, 1))
}
