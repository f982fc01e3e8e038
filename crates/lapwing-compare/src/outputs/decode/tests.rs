//! Documents, numbers and streams as they are decoded.

use super::document::sorted_members;
use super::*;

#[test]
fn a_document_is_read_node_by_node() {
    let document = Document::parse(br#" {"b":[1,-2,2.5,"x",null,true],"a":{},"b":18446744073709551615} "#).unwrap();
    let root = document.root();
    assert_eq!(root.get("b").unwrap().node(), Node::Unsigned(u64::MAX));
    let members: Vec<_> = sorted_members(root.members().unwrap()).iter().map(|(key, value)| (*key, value.node())).collect();
    assert_eq!(members.len(), 2);
    assert_eq!(members[1], ("b", Node::Unsigned(u64::MAX)));
    let first = root.members().unwrap().next().unwrap();
    let nodes: Vec<Node> = first.1.elements().unwrap().map(|value| value.node()).collect();
    assert_eq!(&nodes[..3], &[Node::Unsigned(1), Node::Signed(-2), Node::Float(2.5)]);
    assert_eq!(first.1.elements().unwrap().nth(3).unwrap().text(), Some("x"));
    assert!(root.text().is_none() && root.elements().is_none() && root.number().is_none());
    for wrong in ["", "{", "[1}", "1 x", "{1:2}", "\u{feff}"] {
        assert!(Document::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn numbers_are_exact() {
    // parsers that are off by one unit in the last place get these wrong; the values are the nearest doubles
    for (text, bits) in [
        ("2.2250738585072011e-308", 0x000f_ffff_ffff_ffff_u64),
        ("0.500000000000000166533453693773481063544750213623046875", 0x3fe0_0000_0000_0002),
        ("9007199254740993.0", 0x4340_0000_0000_0000),
        ("3.518437208883201171875e13", 0x42c0_0000_0000_0002),
        ("62.5364939768271845828", 0x404f_44ab_d5aa_7ca4),
        ("8.10109172351e-10", 0x3e0b_d5cb_aef0_fd0c),
        ("1.50000000000000011102230246251565", 0x3ff8_0000_0000_0000),
    ] {
        let document = Document::parse(text.as_bytes()).unwrap();
        assert_eq!(document.root().node(), Node::Float(f64::from_bits(bits)), "{text}");
    }
}

#[test]
fn a_megabyte_of_json_takes_sixteen_bytes_a_node() {
    assert_eq!(size_of::<Node>(), 16);
}

#[test]
fn streams_are_cut_into_documents() {
    let texts = |media, body: &'static str| -> Vec<String> {
        let documents = events::documents(media, &Bytes::from_static(body.as_bytes()));
        documents.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    };
    assert_eq!(texts(Media::Events, "data: {}\n\n: note\n\ndata: [1,\ndata: 2]\n\ndata: [DONE]\n\n"), ["{}", "[1,\n2]"]);
    // servers leave out the last blank line
    assert_eq!(texts(Media::Events, "event: x\ndata: 1"), ["1"]);
    assert_eq!(texts(Media::Lines, "{}\r\n\n[1]"), ["{}", "[1]"]);
}
