//! Runs programs in namespaces of their own, so that the default ports are free, and no process is left behind.

use std::process::Command;

use dunlin_chaos::process::bind_to_this_thread;

/// Returns a command that runs a script in bash, in namespaces of its own: for users, the network, mounts and
/// processes. Further arguments of the command are arguments of the script. The network has only a loopback device, with
/// the addresses 127.0.0.1 and 10.0.0.1 to 10.0.0.3. The directory `/var/lib/dunlin` exists and is empty. When the
/// script or the present thread ends, the kernel kills all processes of the script.
///
/// The command needs `unshare` (util-linux), `ip` (iproute2), and root or namespaces for users.
pub fn in_namespaces(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c"]);
    let set_up = "ip link set lo up && for n in 1 2 3; do ip address add 10.0.0.$n/24 dev lo || exit; done \
                  && mount -t tmpfs none /var/lib && mkdir /var/lib/dunlin || exit";
    command.arg(format!("{set_up}\n{script}")).arg("bash");
    bind_to_this_thread(&mut command);
    command
}
