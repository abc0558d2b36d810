//! What a site tells a coordinator beforehand of its applications and storages, where policies can use it.

use weir_engine::engine::InstanceInfo;
use weir_engine::sharing::periodic::Planning;

/// What is known of an application, by its name.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationInfo {
    pub name: String,
    pub instance: InstanceInfo,
}

/// What the coordinator of one storage is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// What the timetables of `periodic`, `apio` and `apio-barrier` are to be like.
    pub planning: Planning,
    pub applications: Vec<ApplicationInfo>,
    /// `B_i / B`: the part of the storage's bandwidth that one node can use.
    pub node_part: Option<f64>,
}

impl Site {
    /// What each instance of the application does.
    pub(crate) fn instance_of(&self, application: &str) -> Option<InstanceInfo> {
        self.applications.iter().find(|known| known.name == application).map(|known| known.instance)
    }

    /// The part of the bandwidth that a job on so many nodes can use.
    pub(crate) fn cap(&self, nodes: u64) -> Option<f64> {
        self.node_part.map(|part| (part * nodes as f64).min(1.0))
    }
}
