//! Jobs and steps of batch systems, by the names that people know them by: `4_2` for the second task of a Slurm array, not the
//! number 10 that Slurm counts it as.

/// Steps of Slurm that are not counted, by the numbers that stand for them.
const SLURM_STEPS: [(&str, &str); 3] =
    [("4294967291", "batch"), ("4294967292", "extern"), ("4294967290", "interactive")];

/// The job that this process runs in, given how variables of the environment are looked up. Array tasks have the array's number, `_`
/// and their own.
pub fn job(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let number = |name: &str| variable(name).filter(|value| is_number(value));
    if let Some(job) = variable("SLURM_JOB_ID") {
        let task = number("SLURM_ARRAY_JOB_ID").zip(number("SLURM_ARRAY_TASK_ID"));
        return Some(task.map_or(job, |(array, task)| format!("{array}_{task}")));
    }
    if let Some(job) = variable("PBS_JOBID") {
        return Some(pbs_job(&job));
    }
    let job = variable("LSB_JOBID")?;
    // 0 outside arrays.
    let task = number("LSB_JOBINDEX").filter(|task| task != "0");
    Some(task.map_or(job.clone(), |task| format!("{job}_{task}")))
}

/// `1234.server` and `1234[5].server`: without the server.
fn pbs_job(id: &str) -> String {
    let id = id.split('.').next().unwrap_or_default();
    match id.strip_suffix(']').and_then(|id| id.split_once('[')) {
        Some((array, task)) if !task.is_empty() => format!("{array}_{task}"),
        Some((array, _)) => array.into(),
        None => id.into(),
    }
}

/// The step that Slurm has started this process in: its number, or the name of one that is not counted.
pub fn slurm_step(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let step = variable("SLURM_STEP_ID")?;
    let named = SLURM_STEPS.iter().find(|(number, _)| *number == step);
    Some(named.map_or(step, |(_, name)| (*name).into()))
}

/// Whether `srun` has started the step, and not the batch system a script or a shell.
pub fn is_launched(step: &str) -> bool {
    is_number(step)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(variables: &[(&str, &str)]) -> (Option<String>, Option<String>) {
        let look_up = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        (job(look_up), slurm_step(look_up))
    }

    #[test]
    fn array_tasks_are_called_as_people_call_them() {
        for (variables, expected) in [
            (&[("SLURM_JOB_ID", "10"), ("SLURM_ARRAY_JOB_ID", "4"), ("SLURM_ARRAY_TASK_ID", "2")][..], "4_2"),
            (&[("SLURM_JOB_ID", "10")], "10"),
            (&[("PBS_JOBID", "1234[5].pbs01")], "1234_5"),
            (&[("PBS_JOBID", "1234[].pbs01")], "1234"),
            (&[("PBS_JOBID", "1234.pbs01.site.org")], "1234"),
            (&[("LSB_JOBID", "77"), ("LSB_JOBINDEX", "0")], "77"),
            (&[("LSB_JOBID", "77"), ("LSB_JOBINDEX", "3")], "77_3"),
        ] {
            assert_eq!(within(variables).0.as_deref(), Some(expected), "{variables:?}");
        }
        assert_eq!(within(&[]).0, None);
    }

    #[test]
    fn steps_have_names_or_small_numbers() {
        for (number, name) in [("0", "0"), ("17", "17"), ("4294967291", "batch"), ("4294967292", "extern")] {
            assert_eq!(within(&[("SLURM_STEP_ID", number)]).1.as_deref(), Some(name));
        }
        assert!(is_launched("17") && !is_launched("batch"));
    }
}
