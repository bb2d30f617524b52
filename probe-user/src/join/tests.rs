//! Rows of cgroups by their names.

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn a_cgroup_with_the_id_of_a_container_has_a_row_of_its_own() {
    let foreign = format!("/user.slice/user-1000.slice/user@1000.service/{ID}");
    let paths = [
        format!("/docker/{ID}"),
        format!("/docker/{ID}/init"),
        foreign.clone(),
        format!("{foreign}/below"),
        "/system.slice/sshd.service".to_owned(),
    ];
    let names = Names {
        cgroups: (1..).map(CgroupId).zip(paths).collect(),
        ..Names::default()
    };
    for by in [By::Container, By::Pod] {
        let view = View {
            by,
            ..View::default()
        };
        let naming = view.naming(&names);
        let entity = |cgroup| {
            let cgroup = CgroupId(cgroup);
            naming.entity(Owner { cgroup, tgid: 0 }).unwrap()
        };
        let container = Entity::Container {
            id: ID.to_owned(),
            pod: None,
        };
        let rows = [1, 2, 3, 4, 5].map(entity);
        let shown = || Entity::Cgroup(foreign.clone());
        assert_eq!(
            rows,
            [
                container.clone(),
                container,
                shown(),
                shown(),
                Entity::System
            ]
        );
    }
}
