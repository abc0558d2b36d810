//! The command as a developer uses it.

use std::process::{Command, Output};

fn world(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-world")).args(arguments).output().expect("it runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_same_seed_makes_the_same_events() {
    let trace = || stdout(&world(&["--seed", "3", "--trace"]));
    let events = |text: &str| text.lines().filter(|line| !line.starts_with("world:")).count();
    let (first, second) = (trace(), trace());
    assert!(events(&first) > 1_000, "{first}");
    let told = |text: &str| text.lines().take(events(text)).map(String::from).collect::<Vec<_>>();
    assert_eq!(told(&first), told(&second));
}

#[test]
fn worlds_without_failures_succeed_unless_one_is_expected() {
    let good = world(&["--seeds", "0..3", "--threads", "1"]);
    assert!(good.status.success(), "{}", stdout(&good));
    assert!(stdout(&good).contains("3 seeds") && stdout(&good).contains("0 failed"), "{}", stdout(&good));
    assert!(!world(&["--seeds", "0..3", "--expect-failure"]).status.success());
}

#[test]
fn bad_arguments_are_named() {
    for (arguments, reason) in [
        (&["--seeds", "1..x"][..], "\"x\": invalid digit"),
        (&["--seed"], "--seed needs a value"),
        (&["--sneeze"], "unknown option \"--sneeze\""),
        (&["--replay", "/no/such"], "/no/such: No such file"),
    ] {
        let output = world(arguments);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(reason) && said.contains("usage:"), "{said}");
    }
}
