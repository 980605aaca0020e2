//! `include/dmexp.h` is made of this crate's source. After a change of the interface: `DMEXP_WRITE_HEADER=1 cargo test -p dmexp-c --test header`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use syn::{
    Attribute, Expr, Fields, FnArg, GenericArgument, Item, ItemEnum, ItemFn, ItemStruct, ItemType, Lit, Pat, PathArguments, ReturnType,
    Type,
};

const HEAD: &str = "\
/* The C interface of dmexp: language models on microcontrollers, without a heap.
 *
 * Made of runtime/c by its test `header`; do not edit. docs/c.md says how to build and link the library.
 *
 * Models and sessions live in memory of yours: zero it, or fill it with dmexp_open and dmexp_session_new before you pass it on.
 * No function may be called for one session from two threads at once. */
#ifndef DMEXP_H
#define DMEXP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif
";

const TAIL: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

/// Types first, in the order in which C needs them.
const FILES: [&str; 6] = ["error", "model", "session", "stops", "text", "self_test"];

/// The doc comment as C's, without Rust's links.
fn comment(attributes: &[Attribute], indent: &str) -> String {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let syn::Meta::NameValue(pair) = &attribute.meta else { continue };
        let Expr::Lit(literal) = &pair.value else { continue };
        let Lit::Str(line) = &literal.lit else { continue };
        let line = line.value().replace("[`", "").replace("`]", "").replace('`', "").replace("# Safety", "What the caller answers for:");
        let lead = if text.is_empty() { "/*" } else { " *" };
        writeln!(text, "{}", format!("{indent}{lead}{line}").trim_end()).unwrap();
    }
    assert!(!text.is_empty(), "an item of the interface has no description");
    format!("{} */\n", text.trim_end())
}

/// `name` declared as `of`.
fn declared(of: &Type, name: &str) -> String {
    match of {
        Type::Ptr(pointer) => {
            let inner = declared(&pointer.elem, &format!("*{name}"));
            if pointer.const_token.is_some() { format!("const {inner}") } else { inner }
        }
        Type::Array(array) => {
            let Expr::Lit(len) = &array.len else { panic!("the length of an array is no number") };
            let Lit::Int(len) = &len.lit else { panic!("the length of an array is no number") };
            declared(&array.elem, &format!("{name}[{len}]"))
        }
        Type::Path(path) => {
            let last = path.path.segments.last().unwrap().ident.to_string();
            let word = match last.as_str() {
                "u32" => "uint32_t",
                "u64" => "uint64_t",
                "usize" => "size_t",
                "f32" => "float",
                "c_void" => "void",
                "c_char" => "char",
                own if own.starts_with("Dmexp") => own,
                other => panic!("{other} has no type in C here"),
            };
            format!("{word} {name}")
        }
        _ => panic!("a type that C does not have"),
    }
}

/// `DmexpCode::NotMade` as `DMEXP_CODE_NOT_MADE`.
fn constant(of: &str, variant: &str) -> String {
    let mut text = String::new();
    for (place, letter) in format!("{of}{variant}").char_indices() {
        let digit_before = text.ends_with(|last: char| last.is_ascii_digit());
        if place > 0 && letter.is_ascii_uppercase() && !digit_before {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

fn enumeration(item: &ItemEnum) -> String {
    let name = item.ident.to_string();
    let mut text = format!("\n{}typedef enum {name} {{\n", comment(&item.attrs, ""));
    for variant in &item.variants {
        let Some((_, Expr::Lit(value))) = &variant.discriminant else { panic!("{name} has a value without a number") };
        let Lit::Int(value) = &value.lit else { panic!("{name} has a value without a number") };
        writeln!(text, "{}    {} = {value},", comment(&variant.attrs, "    "), constant(&name, &variant.ident.to_string())).unwrap();
    }
    text + &format!("}} {name};\n")
}

fn structure(item: &ItemStruct) -> String {
    let name = item.ident.to_string();
    let Fields::Named(fields) = &item.fields else { panic!("{name} has no named fields") };
    let mut text = format!("\n{}typedef struct {name} {{\n", comment(&item.attrs, ""));
    for field in &fields.named {
        let field_name = field.ident.as_ref().unwrap().to_string();
        // Opaque memory is described where the type is.
        if field_name != "opaque" {
            text += &comment(&field.attrs, "    ");
        }
        writeln!(text, "    {};", declared(&field.ty, &field_name)).unwrap();
    }
    text + &format!("}} {name};\n")
}

/// A callback: the function type within `Option`.
fn callback(item: &ItemType) -> String {
    let Type::Path(path) = &*item.ty else { panic!("{} is no callback", item.ident) };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last().unwrap().arguments else { panic!("no callback") };
    let Some(GenericArgument::Type(Type::BareFn(function))) = arguments.args.first() else { panic!("no callback") };
    let inputs: Vec<_> = function.inputs.iter().map(|input| declared(&input.ty, &input.name.as_ref().unwrap().0.to_string())).collect();
    let ReturnType::Type(_, output) = &function.output else { panic!("a callback without a result") };
    let head = declared(output, &format!("(*{})", item.ident));
    format!("\n{}typedef {head}({});\n", comment(&item.attrs, ""), inputs.join(", "))
}

fn function(item: &ItemFn) -> String {
    let inputs: Vec<_> = item
        .sig
        .inputs
        .iter()
        .map(|input| {
            let FnArg::Typed(input) = input else { panic!("a method") };
            let Pat::Ident(name) = &*input.pat else { panic!("an argument without a name") };
            declared(&input.ty, &name.ident.to_string())
        })
        .collect();
    let ReturnType::Type(_, output) = &item.sig.output else { panic!("{} has no result", item.sig.ident) };
    let head = declared(output, &item.sig.ident.to_string());
    format!("\n{}{head}({});\n", comment(&item.attrs, ""), inputs.join(", "))
}

fn is_for_c(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("repr"))
}

fn generated() -> String {
    let (mut types, mut functions) = (String::new(), String::new());
    for file in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{file}.rs"));
        for item in syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap().items {
            match item {
                Item::Enum(item) if is_for_c(&item.attrs) => types += &enumeration(&item),
                Item::Struct(item) if is_for_c(&item.attrs) => types += &structure(&item),
                Item::Type(item) => types += &callback(&item),
                Item::Fn(item) if item.sig.abi.is_some() => functions += &function(&item),
                _ => {}
            }
        }
    }
    HEAD.to_owned() + &types + &functions + TAIL
}

#[test]
fn the_header_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/dmexp.h");
    let generated = generated();
    if std::env::var_os("DMEXP_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "include/dmexp.h is not what runtime/c says: DMEXP_WRITE_HEADER=1 cargo test -p dmexp-c --test header writes it anew"
    );
    for function in ["dmexp_open", "dmexp_generate", "dmexp_self_test"] {
        assert!(written.contains(&format!("DmexpError {function}(")), "{function}");
    }
}
