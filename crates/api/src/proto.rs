//! Generated protobuf types, clients and servers, one module for each package.
//!
//! The module tree mirrors the package names, since generated code refers to its neighbours by relative path.
//! `machine` is `/machine.MachineService/…` on the wire, and so on.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

/// Messages that every package shares.
pub mod common {
    tonic::include_proto!("common");
}
/// Google's packages.
pub mod google {
    /// The status of a failed call.
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}
/// The node API.
pub mod machine {
    tonic::include_proto!("machine");
}
/// Resources as the first client generation reads them.
pub mod resource {
    tonic::include_proto!("resource");
}
/// Health of a cluster.
pub mod cluster {
    tonic::include_proto!("cluster");
}
/// Health of one service.
pub mod health {
    tonic::include_proto!("health");
}
/// Routes and interfaces as the first client generation reads them.
pub mod network {
    tonic::include_proto!("network");
}
/// Dependencies of controllers.
pub mod inspect {
    tonic::include_proto!("inspect");
}
/// Node certificates.
pub mod securityapi {
    tonic::include_proto!("securityapi");
}
/// Disks.
pub mod storage {
    tonic::include_proto!("storage");
}
/// Clocks.
pub mod time {
    tonic::include_proto!("time");
}
/// The resource API of the current client generation.
pub mod cosi {
    /// Get, list, watch.
    pub mod resource {
        tonic::include_proto!("cosi.resource");
        /// Specs of the resources that describe resources.
        pub mod meta {
            tonic::include_proto!("cosi.resource.meta");
        }
    }
}
/// What is ours alone.
pub mod billet {
    tonic::include_proto!("billet");

    impl std::fmt::Debug for UnlockRequest {
        /// Without the key.
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("UnlockRequest").field("volume", &self.volume).finish_non_exhaustive()
        }
    }
}
