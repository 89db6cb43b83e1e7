use std::sync::mpsc::Sender;
use twinpage::Region;
use twinpage::collections::String;

fn sent(region: &Region, to: &Sender<String<'static>>) {
    region.update(|u| to.send(u.string("Ada")).unwrap());
}

fn main() {}
