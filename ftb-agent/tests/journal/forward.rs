//! Stores that change a part of what another one, their field `store`, does.

/// Methods of [`ftb_agent::world::Store`] that only pass on to `self.store`.
macro_rules! forward {
    ($($method:ident),*) => { $(crate::forward::method!($method);)* };
}

macro_rules! method {
    (get) => {
        fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
            self.store.get(key)
        }
    };
    (segments) => {
        fn segments(&mut self) -> Result<Vec<u64>, StoreError> {
            self.store.segments()
        }
    };
    (read) => {
        fn read(
            &mut self,
            segment: u64,
            visit: &mut dyn FnMut(u64, Vec<u8>),
        ) -> Result<(), StoreError> {
            self.store.read(segment, visit)
        }
    };
    (chunk) => {
        fn chunk(&mut self, segment: u64, first: u64) -> Result<Option<Vec<u8>>, StoreError> {
            self.store.chunk(segment, first)
        }
    };
    (remove_segment) => {
        fn remove_segment(&mut self, segment: u64) -> Result<(), StoreError> {
            self.store.remove_segment(segment)
        }
    };
    (acknowledged) => {
        fn acknowledged(&mut self) -> Result<Vec<u8>, StoreError> {
            self.store.acknowledged()
        }
    };
    (boot) => {
        fn boot(&mut self) -> Option<u128> {
            self.store.boot()
        }
    };
}

pub(crate) use {forward, method};
