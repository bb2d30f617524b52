//! The CRI messages that pmuscope uses, with only the fields that it uses.
//!
//! Names and numbers are those of `runtime.v1` in k8s.io/cri-api, `pkg/apis/runtime/v1/api.proto`.

use std::collections::HashMap;

use bytes::{Buf, BufMut};
use prost::{
    DecodeError, Message,
    encoding::{self, DecodeContext, WireType},
};

/// Maximum number of items of an answer. An empty item takes two bytes in the answer, but hundreds
/// in memory.
pub(crate) const ITEMS: usize = 16_384;

/// Field number of the items in each list.
const ITEMS_TAG: u32 = 1;

/// An answer that lists items.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct List<T> {
    pub(crate) items: Vec<T>,
    /// Whether the answer had more than [`ITEMS`] items: the rest was skipped.
    pub(crate) rest: bool,
}

pub(crate) type ListContainersResponse = List<Container>;
pub(crate) type ListPodSandboxResponse = List<PodSandbox>;
pub(crate) type ListImagesResponse = List<Image>;

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            rest: false,
        }
    }
}

impl<T: Message + Default> Message for List<T> {
    fn encode_raw(&self, into: &mut impl BufMut) {
        encoding::message::encode_repeated(ITEMS_TAG, &self.items, into);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire: WireType,
        from: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let full = self.items.len() == ITEMS;
        self.rest |= full && tag == ITEMS_TAG;
        match tag {
            ITEMS_TAG if !full => {
                encoding::message::merge_repeated(wire, &mut self.items, from, context)
            }
            _ => encoding::skip_field(wire, tag, from, context),
        }
    }

    fn encoded_len(&self) -> usize {
        encoding::message::encoded_len_repeated(ITEMS_TAG, &self.items)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListContainersRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) filter: Option<ContainerFilter>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerFilter {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Container {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "4")]
    pub(crate) image: Option<ImageSpec>,
    #[prost(string, tag = "5")]
    pub(crate) image_ref: String,
    #[prost(map = "string, string", tag = "8")]
    pub(crate) labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(crate) image: String,
    #[prost(string, tag = "18")]
    pub(crate) user_specified_image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) filter: Option<PodSandboxFilter>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSandboxFilter {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(map = "string, string", tag = "3")]
    pub(crate) label_selector: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSandbox {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) metadata: Option<PodSandboxMetadata>,
    #[prost(map = "string, string", tag = "5")]
    pub(crate) labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct VersionRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct VersionResponse {
    #[prost(string, tag = "2")]
    pub(crate) runtime_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListImagesRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Image {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) repo_tags: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_empty_items_is_bounded() {
        let items = |number| [0x0a, 0].repeat(number);
        let list = ListPodSandboxResponse::decode(&*items(ITEMS)).unwrap();
        assert_eq!((list.items.len(), list.rest), (ITEMS, false));
        let list = ListPodSandboxResponse::decode(&*items(2 << 20)).unwrap();
        assert_eq!((list.items.len(), list.rest), (ITEMS, true));
        assert_eq!(list.encode_to_vec(), items(ITEMS));
    }
}
