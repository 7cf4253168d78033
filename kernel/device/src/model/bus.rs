//! A bus: devices and drivers that find each other.
//!
//! # Rules
//! - A device has one driver at most. It is offered to drivers in the order in which they were registered, until one takes it.
//! - Devices and drivers come and go at any time, in any order: registering a driver offers it all devices without one, adding
//!   a device offers it to all drivers. A driver without a device is registered all the same.
//! - Removing a device, or a driver, first ends the bindings.
//!
//! # Locking
//! `changing` is held through every change, and so while drivers probe and remove: they may register on *other* buses, and add devices to them
//! (as the port bus driver does), which orders the buses. The two lists and the bindings are read under spin locks by anybody.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use sched::{Mutex, MutexGuard};
use sync::SpinLock;

use super::driver::{Binding, BusDevice, Driver, DriverError};
use super::identity::Identity;
use super::uevent::{self, Action};

struct Bound<D> {
    driver: Arc<dyn Driver<D>>,
    binding: Arc<dyn Binding>,
}

impl<D> Clone for Bound<D> {
    fn clone(&self) -> Self {
        Self { driver: self.driver.clone(), binding: self.binding.clone() }
    }
}

/// A device on a bus, with the driver it has.
pub struct Attached<D> {
    /// The device.
    pub device: Arc<D>,
    /// Which one it is: a device that comes back is another one.
    pub identity: Identity,
    bound: SpinLock<Option<Bound<D>>>,
}

impl<D: BusDevice> Attached<D> {
    fn bound(&self) -> Option<Bound<D>> {
        self.bound.lock().clone()
    }

    /// The driver that has the device.
    pub fn driver(&self) -> Option<Arc<dyn Driver<D>>> {
        self.bound().map(|bound| bound.driver)
    }

    /// That driver's hold on it.
    pub fn binding(&self) -> Option<Arc<dyn Binding>> {
        self.bound().map(|bound| bound.binding)
    }
}

/// A bus.
pub struct Bus<D: 'static> {
    name: &'static str,
    devices: SpinLock<Vec<Arc<Attached<D>>>>,
    drivers: SpinLock<Vec<Arc<dyn Driver<D>>>>,
    changing: Mutex<()>,
    /// Devices and drivers that come are offered to each other.
    autoprobe: AtomicBool,
}

/// A copy of a list that is kept under a lock, made with memory that was allocated outside of it.
fn copy<T: Clone>(list: &SpinLock<Vec<T>>) -> Vec<T> {
    let mut copy = Vec::new();
    loop {
        let wanted = list.lock().len();
        copy.reserve(wanted);
        let list = list.lock();
        if list.len() <= copy.capacity() {
            copy.extend(list.iter().cloned());
            return copy;
        }
    }
}

/// Replaces a list by a changed copy. The caller keeps other writers away.
fn change<T: Clone>(list: &SpinLock<Vec<T>>, change: impl FnOnce(&mut Vec<T>)) {
    let mut new = copy(list);
    change(&mut new);
    let old = core::mem::replace(&mut *list.lock(), new);
    drop(old);
}

impl<D: BusDevice> Bus<D> {
    /// An empty one; for statics. `changing` names the class of its sleeping lock.
    pub const fn new(name: &'static str, changing: &'static str) -> Self {
        Self {
            name,
            devices: SpinLock::named("devices of a bus", Vec::new()),
            drivers: SpinLock::named("drivers of a bus", Vec::new()),
            changing: Mutex::named(changing, ()),
            autoprobe: AtomicBool::new(true),
        }
    }

    /// Its name below `/sys/bus`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// All devices.
    pub fn devices(&self) -> Vec<Arc<Attached<D>>> {
        copy(&self.devices)
    }

    /// All drivers.
    pub fn drivers(&self) -> Vec<Arc<dyn Driver<D>>> {
        copy(&self.drivers)
    }

    /// The device of that name.
    pub fn device(&self, name: &str) -> Option<Arc<Attached<D>>> {
        self.devices().into_iter().find(|attached| attached.device.name() == name)
    }

    /// The driver of that name.
    pub fn driver(&self, name: &str) -> Option<Arc<dyn Driver<D>>> {
        self.drivers().into_iter().find(|driver| driver.name() == name)
    }

    /// The entry of a device.
    pub fn attached(&self, device: &Arc<D>) -> Option<Arc<Attached<D>>> {
        let devices = self.devices.lock();
        devices.iter().find(|attached| Arc::ptr_eq(&attached.device, device)).cloned()
    }

    /// No driver gets or loses a device while this is held. May sleep; drivers that are called meanwhile must not change this bus.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// The same, if nobody holds it.
    pub fn try_hold(&self) -> Option<MutexGuard<'_, ()>> {
        self.changing.try_lock()
    }

    /// Adds a device and offers it to the drivers.
    pub fn add(&self, device: Arc<D>) -> Arc<Attached<D>> {
        let _changing = self.changing.lock();
        let bound = SpinLock::named("driver of a device", None);
        let attached = Arc::new(Attached { device, identity: Identity::new(), bound });
        change(&self.devices, |devices| devices.push(attached.clone()));
        emit(Action::Add, &attached);
        if self.autoprobe() {
            self.offer(&attached);
        }
        attached
    }

    /// Offers a device to the drivers, until one takes it. With `changing` held.
    fn offer(&self, attached: &Arc<Attached<D>>) {
        for driver in self.drivers() {
            if driver.matches(&attached.device) && self.try_bind(attached, &driver).is_ok() {
                break;
            }
        }
    }

    /// Offers a device without a driver to all drivers, by name.
    pub fn probe(&self, device: &str) -> Result<(), DriverError> {
        let _changing = self.changing.lock();
        let attached = self.device(device).ok_or(DriverError::NotFound)?;
        if attached.bound().is_none() {
            self.offer(&attached);
        }
        Ok(())
    }

    /// Whether devices and drivers that come are offered to each other. If not, only [`Bus::bind`] and [`Bus::probe`] bring them together.
    pub fn autoprobe(&self) -> bool {
        self.autoprobe.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_autoprobe(&self, on: bool) {
        self.autoprobe.store(on, Ordering::Relaxed);
    }

    /// Takes a device out, after its driver.
    pub fn remove(&self, device: &Arc<D>) {
        let _changing = self.changing.lock();
        let Some(attached) = self.attached(device) else { return };
        self.release(&attached);
        change(&self.devices, |devices| devices.retain(|one| !Arc::ptr_eq(one, &attached)));
        emit(Action::Remove, &attached);
    }

    /// Registers a driver and offers it all devices that have none. Fails with [`DriverError::Busy`] if the name is taken; that no
    /// device is there is no failure.
    pub fn register(&self, driver: Arc<dyn Driver<D>>) -> Result<(), DriverError> {
        let _changing = self.changing.lock();
        if self.driver(driver.name()).is_some() {
            return Err(DriverError::Busy);
        }
        change(&self.drivers, |drivers| drivers.push(driver.clone()));
        if self.autoprobe() {
            self.offer_all(&driver);
        }
        Ok(())
    }

    fn offer_all(&self, driver: &Arc<dyn Driver<D>>) {
        for attached in self.devices() {
            if attached.bound().is_none() && driver.matches(&attached.device) {
                // A device that the driver does not take stays without one.
                let _ = self.try_bind(&attached, driver);
            }
        }
    }

    /// Takes a driver away from all its devices, and out.
    pub fn unregister(&self, name: &str) -> Result<(), DriverError> {
        let _changing = self.changing.lock();
        let driver = self.driver(name).ok_or(DriverError::NotFound)?;
        for attached in self.devices() {
            if attached.driver().is_some_and(|bound| bound.name() == name) {
                self.release(&attached);
            }
        }
        change(&self.drivers, |drivers| drivers.retain(|one| one.name() != driver.name()));
        Ok(())
    }

    /// Gives a device to a driver by name.
    pub fn bind(&self, driver: &str, device: &str) -> Result<(), DriverError> {
        let _changing = self.changing.lock();
        let driver = self.driver(driver).ok_or(DriverError::NotFound)?;
        let attached = self.device(device).ok_or(DriverError::NotFound)?;
        if !driver.matches(&attached.device) {
            return Err(DriverError::NotFound);
        }
        self.try_bind(&attached, &driver)
    }

    /// Takes a device away from a driver by name.
    pub fn unbind(&self, driver: &str, device: &str) -> Result<(), DriverError> {
        let _changing = self.changing.lock();
        let attached = self.device(device).ok_or(DriverError::NotFound)?;
        if attached.driver().is_none_or(|bound| bound.name() != driver) {
            return Err(DriverError::NotFound);
        }
        self.release(&attached);
        Ok(())
    }

    /// Takes a device away from its driver, if that is still the one with this hold on it.
    pub fn release_from(&self, device: &Arc<D>, binding: &Arc<dyn Binding>) {
        let _changing = self.changing.lock();
        let Some(attached) = self.attached(device) else { return };
        if attached.binding().is_some_and(|held| Arc::ptr_eq(&held, binding)) {
            self.release(&attached);
        }
    }

    /// Takes a device away from its driver and gives it back to that one: the device has forgotten everything.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] if it has none; those of [`Driver::probe`], without a driver then.
    pub fn restart(&self, device: &Arc<D>) -> Result<(), DriverError> {
        let _changing = self.changing.lock();
        let attached = self.attached(device).ok_or(DriverError::NotFound)?;
        let driver = attached.driver().ok_or(DriverError::NotFound)?;
        self.release(&attached);
        self.try_bind(&attached, &driver)
    }

    /// Extends a driver's id table and offers it what it may now take.
    pub fn add_id(&self, driver: &str, text: &str) -> Result<(), DriverError> {
        let _changing = self.changing.lock();
        let driver = self.driver(driver).ok_or(DriverError::NotFound)?;
        driver.add_id(text)?;
        self.offer_all(&driver);
        Ok(())
    }

    /// Takes an entry out of a driver's id table that was added. Devices that it has stay with it.
    pub fn remove_id(&self, driver: &str, text: &str) -> Result<(), DriverError> {
        let _changing = self.changing.lock();
        self.driver(driver).ok_or(DriverError::NotFound)?.remove_id(text)
    }

    /// With `changing` held.
    fn try_bind(&self, attached: &Arc<Attached<D>>, driver: &Arc<dyn Driver<D>>) -> Result<(), DriverError> {
        if attached.bound().is_some() {
            return Err(DriverError::Busy);
        }
        let binding = driver.probe(&attached.device).inspect_err(|error| {
            let name = attached.device.name();
            log::debug!("{} {name}: {} does not take it: {error:?}", self.name, driver.name());
        })?;
        *attached.bound.lock() = Some(Bound { driver: driver.clone(), binding });
        emit(Action::Bind, attached);
        Ok(())
    }

    /// With `changing` held.
    fn release(&self, attached: &Arc<Attached<D>>) {
        let Some(bound) = attached.bound() else { return };
        bound.binding.remove();
        let old = attached.bound.lock().take();
        drop(old);
        emit(Action::Unbind, attached);
    }

    /// The lines of a device's `uevent` file.
    pub fn describe(attached: &Attached<D>) -> String {
        let mut text = driver_line(attached);
        attached.device.describe(&mut text);
        text
    }

    /// Has an event happen that a program asks for, in the words of [`uevent::Request`]. Fails with [`DriverError::Invalid`] if they are others.
    pub fn pretend(attached: &Attached<D>, text: &str) -> Result<(), DriverError> {
        let request = uevent::Request::parse(text).ok_or(DriverError::Invalid)?;
        let more = request.properties + &driver_line(attached);
        uevent::emit_with(request.action, &*attached.device, &more);
        Ok(())
    }
}

/// The line that names a device's driver, if it has one.
fn driver_line<D: BusDevice>(attached: &Attached<D>) -> String {
    attached.driver().map_or(String::new(), |driver| alloc::format!("DRIVER={}\n", driver.name()))
}

fn emit<D: BusDevice>(action: Action, attached: &Attached<D>) {
    uevent::emit_with(action, &*attached.device, &driver_line(attached));
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    struct Thing(u32);

    impl BusDevice for Thing {
        fn name(&self) -> String {
            alloc::format!("thing{}", self.0)
        }

        fn subsystem(&self) -> &'static str {
            "things"
        }
    }

    #[derive(Default)]
    struct Counts {
        probed: AtomicU32,
        removed: AtomicU32,
    }

    struct Odd(Arc<Counts>, &'static str);
    struct Held(Arc<Counts>);

    impl Driver<Thing> for Odd {
        fn name(&self) -> &str {
            self.1
        }

        fn matches(&self, thing: &Thing) -> bool {
            thing.0 % 2 == 1
        }

        fn probe(&self, thing: &Arc<Thing>) -> Result<Arc<dyn Binding>, DriverError> {
            if thing.0 == 13 {
                return Err(DriverError::Broken);
            }
            self.0.probed.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new(Held(self.0.clone())))
        }
    }

    impl Binding for Held {
        fn remove(&self) {
            self.0.removed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counts(counts: &Counts) -> (u32, u32) {
        (counts.probed.load(Ordering::Relaxed), counts.removed.load(Ordering::Relaxed))
    }

    #[test]
    fn devices_and_drivers_find_each_other_in_any_order() {
        let bus: Bus<Thing> = Bus::new("things", "things of a test");
        let seen = Arc::new(Counts::default());
        let before = Arc::new(Thing(1));
        bus.add(before.clone());
        bus.register(Arc::new(Odd(seen.clone(), "odd"))).unwrap();
        assert_eq!(counts(&seen), (1, 0));
        assert_eq!(bus.register(Arc::new(Odd(seen.clone(), "odd"))), Err(DriverError::Busy));
        bus.add(Arc::new(Thing(2)));
        bus.add(Arc::new(Thing(3)));
        assert_eq!(counts(&seen), (2, 0));
        bus.remove(&before);
        assert_eq!(counts(&seen), (2, 1));
        bus.unregister("odd").unwrap();
        assert_eq!(counts(&seen), (2, 2));
        assert!(bus.device("thing3").unwrap().driver().is_none());
    }

    #[test]
    fn second_driver_gets_what_the_first_lets_go_or_refuses() {
        let bus: Bus<Thing> = Bus::new("things", "things of a test");
        let (first, second) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
        bus.register(Arc::new(Odd(first.clone(), "first"))).unwrap();
        bus.register(Arc::new(Odd(second.clone(), "second"))).unwrap();
        bus.add(Arc::new(Thing(5)));
        assert_eq!((counts(&first), counts(&second)), ((1, 0), (0, 0)));
        assert_eq!(bus.bind("second", "thing5"), Err(DriverError::Busy));
        assert_eq!(bus.unbind("second", "thing5"), Err(DriverError::NotFound));
        bus.unbind("first", "thing5").unwrap();
        bus.bind("second", "thing5").unwrap();
        assert_eq!((counts(&first), counts(&second)), ((1, 1), (1, 0)));
        assert_eq!(bus.bind("first", "thing6"), Err(DriverError::NotFound));
        bus.set_autoprobe(false);
        bus.add(Arc::new(Thing(7)));
        assert!(bus.device("thing7").unwrap().driver().is_none());
        assert_eq!(bus.probe("thing8"), Err(DriverError::NotFound));
        bus.probe("thing7").unwrap();
        assert_eq!(bus.device("thing7").unwrap().driver().unwrap().name(), "first");
        bus.set_autoprobe(true);
        bus.add(Arc::new(Thing(13)));
        assert!(bus.device("thing13").unwrap().driver().is_none());
    }

    #[test]
    fn restarted_device_has_its_driver_anew() {
        let bus: Bus<Thing> = Bus::new("things", "things of a test");
        let seen = Arc::new(Counts::default());
        bus.register(Arc::new(Odd(seen.clone(), "odd"))).unwrap();
        let (odd, even) = (Arc::new(Thing(1)), Arc::new(Thing(2)));
        bus.add(odd.clone());
        bus.add(even.clone());
        let before = bus.attached(&odd).unwrap().binding().unwrap();
        assert_eq!(bus.restart(&odd), Ok(()));
        assert_eq!(counts(&seen), (2, 1));
        assert_eq!(bus.restart(&even), Err(DriverError::NotFound));
        bus.release_from(&odd, &before);
        assert_eq!(counts(&seen), (2, 1), "the hold was another one's");
        let now = bus.attached(&odd).unwrap().binding().unwrap();
        bus.release_from(&odd, &now);
        assert_eq!(counts(&seen), (2, 2));
        assert_eq!(bus.restart(&odd), Err(DriverError::NotFound));
    }
}
