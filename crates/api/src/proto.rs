//! Generated protobuf types, clients and servers, one module for each package.
//!
//! The module tree mirrors the package names, since generated code refers to its neighbours by relative path.
//! `machine` is `/machine.MachineService/…` on the wire, and so on.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

/// Every service and message of the API, without Google's: a `google.protobuf.FileDescriptorSet`, for tests.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wire.bin"));

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
/// The binary forms of resources.
pub mod talos {
    /// The binary forms of resources.
    pub mod resource {
        /// One module for each package; proto/definitions says which type has which message.
        pub mod definitions {
            /// Package `block`.
            pub mod block {
                tonic::include_proto!("talos.resource.definitions.block");
            }
            /// Package `cluster`.
            pub mod cluster {
                tonic::include_proto!("talos.resource.definitions.cluster");
            }
            /// Package `common`.
            pub mod common {
                tonic::include_proto!("talos.resource.definitions.common");
            }
            /// Package `config`.
            pub mod config {
                tonic::include_proto!("talos.resource.definitions.config");
            }
            /// Package `containers`.
            pub mod containers {
                tonic::include_proto!("talos.resource.definitions.containers");
            }
            /// Package `cri`.
            pub mod cri {
                tonic::include_proto!("talos.resource.definitions.cri");
            }
            /// Package `enums`.
            pub mod enums {
                tonic::include_proto!("talos.resource.definitions.enums");
            }
            /// Package `etcd`.
            pub mod etcd {
                tonic::include_proto!("talos.resource.definitions.etcd");
            }
            /// Package `files`.
            pub mod files {
                tonic::include_proto!("talos.resource.definitions.files");
            }
            /// Package `hardware`.
            pub mod hardware {
                tonic::include_proto!("talos.resource.definitions.hardware");
            }
            /// Package `k8s`.
            pub mod k8s {
                tonic::include_proto!("talos.resource.definitions.k8s");
            }
            /// Package `kubeaccess`.
            pub mod kubeaccess {
                tonic::include_proto!("talos.resource.definitions.kubeaccess");
            }
            /// Package `kubespan`.
            pub mod kubespan {
                tonic::include_proto!("talos.resource.definitions.kubespan");
            }
            /// Package `network`.
            pub mod network {
                tonic::include_proto!("talos.resource.definitions.network");
            }
            /// Package `perf`.
            pub mod perf {
                tonic::include_proto!("talos.resource.definitions.perf");
            }
            /// Package `proto`.
            pub mod proto {
                tonic::include_proto!("talos.resource.definitions.proto");
            }
            /// Package `runtime`.
            pub mod runtime {
                tonic::include_proto!("talos.resource.definitions.runtime");
            }
            /// Package `secrets`.
            pub mod secrets {
                tonic::include_proto!("talos.resource.definitions.secrets");
            }
            /// Package `security`.
            pub mod security {
                tonic::include_proto!("talos.resource.definitions.security");
            }
            /// Package `siderolink`.
            pub mod siderolink {
                tonic::include_proto!("talos.resource.definitions.siderolink");
            }
            /// Package `storage`.
            pub mod storage {
                tonic::include_proto!("talos.resource.definitions.storage");
            }
            /// Package `time`.
            pub mod time {
                tonic::include_proto!("talos.resource.definitions.time");
            }
            /// Package `v1alpha1`.
            pub mod v1alpha1 {
                tonic::include_proto!("talos.resource.definitions.v1alpha1");
            }
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
