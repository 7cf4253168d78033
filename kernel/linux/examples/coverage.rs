//! Prints the book's page on what each system call supports.

fn main() {
    print!("{}", linux::table::reference());
}
