//! The word lists of the story grammar. Read by `grammar.rs`.

/// Girls' names.
pub const GIRLS: &[&str] =
    &["Lily", "Mia", "Anna", "Sara", "Lucy", "Ella", "Rosie", "Nora", "Molly", "Amy", "Kate", "Ruby", "Emma", "Sue", "Jane", "Mary"];
/// Boys' names.
pub const BOYS: &[&str] =
    &["Tom", "Ben", "Max", "Sam", "Leo", "Tim", "Jack", "Finn", "Bob", "Adam", "Luke", "Dan", "Peter", "Ned", "Nick", "Mark"];
/// Animals with a name: kind, name, whether it is a she.
pub const ANIMALS: &[(&str, &str, bool)] = &[
    ("rabbit", "Hop", false),
    ("rabbit", "Clover", true),
    ("fox", "Rusty", false),
    ("fox", "Ginger", true),
    ("bear", "Bruno", false),
    ("bear", "Honey", true),
    ("mouse", "Pip", false),
    ("mouse", "Tilly", true),
    ("duck", "Paddle", false),
    ("duck", "Daisy", true),
    ("frog", "Lilypad", true),
    ("frog", "Jumper", false),
    ("squirrel", "Nutty", false),
    ("squirrel", "Hazel", true),
    ("cat", "Whiskers", false),
    ("cat", "Coco", true),
    ("dog", "Spot", false),
    ("dog", "Penny", true),
];
/// What a hero is like.
pub const TRAITS: &[&str] =
    &["kind", "happy", "brave", "curious", "shy", "clever", "friendly", "cheerful", "quiet", "gentle", "funny", "merry"];
/// Colours and the like, all of which fit every toy and "something ...".
pub const LOOKS: &[&str] = &[
    "red", "blue", "green", "yellow", "orange", "purple", "pink", "white", "shiny", "tiny", "big", "brown", "black", "golden", "striped",
    "silver",
];
/// How small animals look.
pub const FURS: &[&str] = &["brown", "white", "black", "gray", "golden", "tiny", "fluffy", "spotted"];
/// What may stand before a look.
pub const SIZES: &[&str] = &["small", "new", "little", "lovely", "old", "fine", "bright", "funny", "pretty", "special", "dear", "good"];
/// Toys, and whether they can fly up into a tree.
pub const TOYS: &[(&str, bool)] = &[
    ("ball", true),
    ("kite", true),
    ("balloon", true),
    ("plane", true),
    ("hat", true),
    ("doll", false),
    ("toy boat", false),
    ("toy car", false),
    ("teddy bear", false),
    ("drum", false),
    ("robot", false),
    ("toy train", false),
    ("bucket", false),
    ("truck", false),
    ("puppet", false),
    ("whistle", false),
];
/// Places: name, the way there, being there, and spots to look at.
pub const PLACES: &[(&str, &str, &str, &[&str])] = &[
    (
        "the park",
        "to the park",
        "in the park",
        &["under the bench", "behind the slide", "near the swings", "in the bushes", "behind a tall tree"],
    ),
    (
        "the beach",
        "to the beach",
        "at the beach",
        &["behind a big rock", "near the water", "under a boat", "in the warm sand", "beside a sand castle"],
    ),
    (
        "the garden",
        "to the garden",
        "in the garden",
        &["under the roses", "behind the shed", "by the gate", "next to the pumpkins", "near the old well"],
    ),
    (
        "the forest",
        "to the forest",
        "in the forest",
        &["under a log", "behind an oak tree", "by the stream", "in the tall grass", "beside a big stone"],
    ),
    ("the farm", "to the farm", "at the farm", &["behind the barn", "in the hay", "near the pond", "under the cart", "by the fence"]),
    (
        "the lake",
        "to the lake",
        "at the lake",
        &["under the bridge", "near the reeds", "behind a boat", "on the dock", "beside a picnic table"],
    ),
    (
        "the hill",
        "up the hill",
        "on the hill",
        &["behind a big rock", "under a bush", "in the tall grass", "near the windmill", "beside a pine tree"],
    ),
    (
        "the market",
        "to the market",
        "at the market",
        &["under a table", "behind a basket", "near the apple cart", "beside the flower shop", "by the big clock"],
    ),
];
/// Small animals that need help: kind and the sound it makes.
pub const PETS: &[(&str, &str)] = &[
    ("bird", "chirp"),
    ("kitten", "meow"),
    ("puppy", "woof"),
    ("turtle", "hum"),
    ("hedgehog", "squeak"),
    ("lamb", "baa"),
    ("duckling", "quack"),
    ("owl", "hoot"),
];
/// Grown-ups: how the hero names them, and whether it is a she.
pub const GROWN: &[(&str, bool)] = &[("mom", true), ("dad", false), ("grandma", true), ("grandpa", false)];
/// Things to cook: name, what is missing.
pub const DISHES: &[(&str, &str)] = &[
    ("an apple pie", "apples"),
    ("a birthday cake", "eggs"),
    ("some vegetable soup", "carrots"),
    ("some pancakes", "milk"),
    ("some cookies", "sugar"),
    ("some honey bread", "honey"),
    ("a fruit salad", "berries"),
    ("some pumpkin soup", "pumpkins"),
];
/// Things to be afraid of, with what helps, how it turns out, and the way there.
pub const FEARS: &[(&str, &str, &str, &str)] = &[
    ("the dark", "a little lamp", "There were only stars and a soft moon", "into the dark forest"),
    ("thunder", "a warm coat", "It was only a loud noise in the sky", "out in the rain"),
    ("the deep water", "a round swim ring", "The water was warm and soft", "to the lake"),
    ("the big slide", "a happy smile", "It was fast and fun", "to the park"),
    ("the big dog next door", "a tasty bone", "The dog only wanted to play", "to see the dog"),
    ("high places", "a strong rope", "The view was wide and pretty", "up the hill"),
];
/// Things to plant and what grows.
pub const PLANTS: &[(&str, &str)] = &[
    ("sunflower", "a tall sunflower"),
    ("pumpkin", "a round pumpkin"),
    ("rose", "a red rose"),
    ("carrot", "a big carrot"),
    ("bean", "a long bean plant"),
    ("melon", "a sweet melon"),
];
/// Things to build, of what, and what knocks them down.
pub const BUILDS: &[(&str, &str, &str)] = &[
    ("tower", "blocks", "a cat ran past and knocked it down"),
    ("sand castle", "wet sand", "a big wave washed it away"),
    ("tree house", "old boards", "a strong wind blew it down"),
    ("snowman", "white snow", "the hot sun melted its head"),
    ("fort", "soft pillows", "the walls fell on the floor"),
    ("bridge", "flat stones", "the water pushed it over"),
];
