//! Links the kernel with its own layout on the bare machine; on the host there is nothing to do.

fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the package's folder");
        println!("cargo::rustc-link-arg-bins=-T{folder}/link.ld");
        println!("cargo::rustc-link-arg-bins=--gc-sections");
        println!("cargo::rustc-link-arg-bins=--icf=all");
        println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
        println!("cargo::rustc-link-arg-bins=--build-id=none");
    }
}
