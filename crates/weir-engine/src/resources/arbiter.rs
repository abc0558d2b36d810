//! Resources for applications that come and go: what a live coordinator asks.

use super::{Application, BadInput, MAX_APPLICATIONS, Platform, Policy, check_work};

/// Keeps who is there and what each was given.
#[derive(Clone, Debug)]
pub struct Arbiter {
    platform: Platform,
    policy: Policy,
    seed: u64,
    /// Applications seen so far: each draws from a seed of its own.
    joined: u64,
    ids: Vec<u64>,
    applications: Vec<Application>,
    placement: Vec<Vec<usize>>,
}

impl Arbiter {
    pub fn new(platform: Platform, policy: Policy, seed: u64) -> Result<Self, BadInput> {
        platform.check()?;
        let (ids, applications, placement) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Arbiter { platform, policy, seed, joined: 0, ids, applications, placement })
    }

    /// Gives a newcomer its resources; those who are there keep theirs.
    pub fn join(&mut self, id: u64, application: Application) -> Result<&[usize], BadInput> {
        self.admit(id, application)?;
        let others: Vec<&[usize]> = self.placement.iter().map(Vec::as_slice).collect();
        let seed = self.seed.wrapping_add(self.joined);
        let given = self.policy.join(&self.platform, &self.applications, &others, seed);
        self.joined += 1;
        self.ids.push(id);
        self.placement.push(given);
        Ok(&self.placement[self.placement.len() - 1])
    }

    /// Takes in an application that has its resources already, from another arbiter; ascending.
    pub fn adopt(&mut self, id: u64, application: Application, resources: &[usize]) -> Result<(), BadInput> {
        let widest = application.widest(self.platform.resources);
        let ascends = resources.windows(2).all(|pair| pair[0] < pair[1]);
        let exist = resources.last().is_some_and(|&last| last < self.platform.resources);
        if !(ascends && exist && resources.len() <= widest) {
            let reason = format!("must be from 1 to {widest} of this platform, ascending");
            return Err(BadInput::new("resources", reason));
        }
        self.admit(id, application)?;
        self.ids.push(id);
        self.placement.push(resources.to_vec());
        Ok(())
    }

    fn admit(&mut self, id: u64, application: Application) -> Result<(), BadInput> {
        application.check(&self.platform)?;
        if self.ids.contains(&id) {
            return Err(BadInput::new("id", format!("application {id} is already there")));
        }
        if self.ids.len() == MAX_APPLICATIONS {
            return Err(BadInput::new("applications", format!("there are {MAX_APPLICATIONS} already")));
        }
        self.applications.push(application);
        check_work(&self.platform, &self.applications).inspect_err(|_| drop(self.applications.pop()))
    }

    /// Forgets an application; answers whether it was there.
    pub fn leave(&mut self, id: u64) -> bool {
        let Some(i) = self.ids.iter().position(|&other| other == id) else { return false };
        self.ids.remove(i);
        self.applications.remove(i);
        self.placement.remove(i);
        true
    }

    /// The resources of an application that is there.
    pub fn resources_of(&self, id: u64) -> Option<&[usize]> {
        let i = self.ids.iter().position(|&other| other == id)?;
        Some(&self.placement[i])
    }

    /// Decides anew for all, for when those who are there can change resources. Answers who has to.
    pub fn reschedule(&mut self) -> Vec<u64> {
        let placement = self.policy.schedule(&self.platform, &self.applications, self.seed);
        let changed = |&i: &usize| placement[i] != self.placement[i];
        let moved = (0..self.ids.len()).filter(changed).map(|i| self.ids[i]).collect();
        self.placement = placement;
        moved
    }
}
