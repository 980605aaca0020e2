//! Plots about a day: rescues, fears, cooking, noises, rain, seeds, building. In the language of `template.rs`; read by `grammar.rs`.

use super::{Needs, Plot};

/// These plots.
pub(super) const PLOTS: &[Plot] = &[
    Plot {
        name: "rescue",
        needs: Needs::Nothing,
        parts: &[
            &[
                "One {day}, {h} went for a walk {at}.",
                "One {day}, {he} was playing {at} with {his} friend {ff}.",
                "One {day}, {he} took a walk {at} with {his} {g}.",
            ],
            &[
                "{He} heard a small sound. \"{Sound}, {sound}!\" It came from {s1}.",
                "Then {he} saw a little {fur} {pet} {s1}.",
                "There was something {s1}. It was a~ {fur} {pet}!",
            ],
            &[
                "/\"Hello, little {pet}. What is wrong?\" asked {h}.",
                "/{h} went closer. \"Are you okay, little {pet}?\" {he} asked.",
                "/\"Poor {pet}!\" said {h}.",
            ],
            &[
                "The {pet} was [cold and wet|very hungry|tired and alone]. It could not find its [mother|home].",
                "The {pet} had a hurt [leg|foot]. It could not walk.",
                "The {pet} was lost and wanted to go home.",
                "The {pet} was stuck under [a branch|a heavy stone].",
            ],
            &[
                "{h} [picked it up|took it in {his} arms] and [gave it some water|kept it warm|sang it a soft song].",
                "\"I will help you,\" said {h}. {He} [gave the {pet} some bread|made a soft bed of leaves|put {his} coat around it].",
                "{h} ran home to {his} {g}. \"We must help the {pet},\" {he} said. {G2} got [a warm blanket|some warm milk|a soft towel].",
            ],
            &[
                "/Day after day, the {pet} got stronger.",
                "/Soon the {pet} felt better. \"{Sound}!\" it said.",
                "/Then they heard a~ {sound} {s2}. It was the mother {pet}!",
                "/They walked and walked until they found its home {s3}.",
            ],
            &[
                "The {pet} looked at {h} and said \"{sound}\" to say thank you.",
                "\"Goodbye, little {pet},\" said {h}. The {pet} [looked back one more time|was happy].",
                "The {pet} was so happy that it [jumped|danced] around {h}.",
            ],
            &[
                "/From that day on, the {pet} came to see {h} every {daytime}.",
                "/{h} and the {pet} became good friends.",
                "/{h} went home with a warm heart. Helping felt good.",
                "/\"You have a kind heart,\" said {his} {g}. {h} smiled.",
            ],
        ],
    },
    Plot {
        name: "afraid",
        needs: Needs::Nothing,
        parts: &[
            &[
                "{He} was afraid of {fear}.",
                "There was one thing {he} did not like. {He} was scared of {fear}.",
                "{He} liked many things, but {he} was afraid of {fear}.",
            ],
            &[
                "One {day}, {his} friend {ff} asked, \"Do you want to come with me {to}?\"",
                "One {day}, {ff} came to visit. \"Let us go {to},\" said {f}.",
                "{His} friends all went {to}, but {h} stayed at home. Then {ff} came back for {him}.",
            ],
            &[
                "/\"I can not,\" said {h}. \"I am afraid of {fear}.\"",
                "/{h} shook {his} head. \"I am too scared,\" {he} said.",
                "/{h} hid behind {his} {g}. \"I do not want to go,\" {he} said.",
            ],
            &[
                "\"I was scared too,\" said {f}. \"I will stay with you.\"",
                "\"It is okay to be scared,\" said {his} {g}. \"You can be scared and brave.\"",
                "{f} did not laugh. \"We can do it together,\" {fhe} said.",
            ],
            &["{f} gave {him} {aid}.", "{His} {g} gave {him} {aid} to help.", "With {aid}, {h} felt a little better."],
            &[
                "/{h} closed {his} eyes and counted to three. Then {he} looked. {calm}.",
                "/Slowly, {h} took one step, and then one more. {calm}.",
                "/{h} took a big breath. It was not so bad. {calm}.",
            ],
            &[
                "\"I did it!\" {h} [said|shouted|cried].",
                "\"Look at me!\" said {h}. \"I am not scared now.\"",
                "{h} laughed. \"That was fun! Can we do it again?\" {he} asked.",
            ],
            &[
                "/{f} clapped {fhis} hands. \"You are very brave,\" {fhe} said.",
                "/\"I am proud of you,\" said {his} {g}.",
                "/From that day on, {h} was not afraid of {fear}.",
                "/That night, {h} [slept well|told {his} {g} all about it|had sweet dreams]. {He} was brave now.",
            ],
        ],
    },
    Plot {
        name: "cook",
        needs: Needs::Nothing,
        parts: &[
            &[
                "One {day}, {he} wanted to make {dish} for {his} {g}.",
                "It was {his} {g}'s birthday, and {h} wanted to make {dish}.",
                "{He} loved to cook. One {day}, {he} wanted to make {dish}.",
            ],
            &[
                "{He} looked in the kitchen, but {he} could not find any {missing}.",
                "But there was a problem. {He} had no {missing}.",
                "\"Oh dear,\" {he} said. \"We have no {missing}.\"",
            ],
            &[
                "/So {h} went {to} to look for some. There {he} met {ff}.",
                "/{h} took a basket and went to see {his} friend {ff}.",
                "/{h} knocked on the door of {his} friend {ff}.",
            ],
            &[
                "\"Do you have some {missing}?\" {h} asked.",
                "\"I want to make {dish}, but I have no {missing},\" said {h}.",
                "\"Please, can you give me some {missing}?\" asked {h}.",
            ],
            &[
                "\"Yes, of course,\" said {f}. \"You can have all you need if I can help you.\"",
                "\"I have a lot,\" said {f}. \"Take what you need.\"",
                "\"Let me look,\" said {f}, and {fhe} came back with a [big bag|full basket].",
            ],
            &[
                "/Together they [mixed|stirred] and [cut|washed] and cooked. Soon the kitchen smelled very good.",
                "/They went home and worked all {daytime}. {f} made a mess, and they both laughed.",
                "/They cooked together. {h} stirred, and {f} sang a funny song.",
            ],
            &[
                "When it was ready, {his} {g} came in. \"What smells so good?\" {ghe} asked.",
                "{His} {g} took a bite. \"This is the best food ever!\" {ghe} said.",
                "\"Surprise!\" they said, and {his} {g} smiled.",
            ],
            &[
                "/They all sat down and ate until there was nothing left.",
                "/They shared the food with everyone, and all were happy.",
                "/\"Thank you, {f},\" said {h}. \"Food tastes better with a friend.\"",
                "/{h} was proud. {He} could not wait to cook again.",
            ],
        ],
    },
    Plot {
        name: "noise",
        needs: Needs::Nothing,
        parts: &[
            &[
                "One {night}, {h} heard a strange sound. \"{Sound}, {sound}!\"",
                "One {night}, something woke {him} up. \"{Sound}!\" it went.",
                "{He} was in bed one {night}. Then {he} heard a noise. \"{Sound}!\"",
            ],
            &[
                "\"What is that?\" {he} [asked|whispered]. It came from [the box|the closet|under the bed|behind the door].",
                "\"Who is there?\" {he} said. No one answered.",
                "{His} heart beat fast. \"Is it a monster?\" {he} thought.",
            ],
            &[
                "/{h} called {his} {g}. \"I hear a noise,\" {he} said.",
                "/{h} wanted to hide. But {he} was curious too.",
                "/{h} took {his} lamp and stood up.",
            ],
            &[
                "\"Let us look together,\" said {his} {g}. They went slowly, step by step.",
                "{He} went closer and closer. \"{Sound}!\" it went again.",
                "Step by step, {he} went to look.",
            ],
            &[
                "/It was not a monster at all. It was a little {fur} {pet}!",
                "/Two round eyes looked up. It was only a~ {fur} {pet}!",
                "/Out came a~ {fur} {pet}. It was more scared than {h}.",
            ],
            &[
                "\"You are so small,\" said {h}. \"Are you hungry?\" {He} gave it [some milk|some bread|a bit of cheese].",
                "{h} laughed. \"I was afraid of a little {pet}!\" {he} said.",
                "The {pet} was cold, so {h} gave it {his} blanket.",
            ],
            &[
                "\"Can we keep it?\" {he} asked. \"Yes, if you take care of it,\" said {his} {g}.",
                "\"You can stay with me,\" {h} told the {pet}. \"{Sound},\" it said.",
                "{h} named the {pet} [Button|Star|Bean|Moon].",
            ],
            &[
                "/Then they both fell asleep.",
                "/After that, {h} was not afraid of sounds in the night.",
                "/From that day on, the {pet} slept next to {him} every night.",
                "/The next day, {he} told {ff} all about the {pet}.",
            ],
        ],
    },
    Plot {
        name: "rain",
        needs: Needs::Toy,
        parts: &[
            &[
                "One {daytime}, {he} wanted to go {to} with {his} {thing}.",
                "{He} wanted to play {at} with {his} {thing}.",
                "\"Today I will go {to} with my {thing},\" {he} said.",
            ],
            &[
                "But it began to rain. Drip, drop, drip, drop.",
                "Then dark clouds came, and it started to rain.",
                "But outside it was wet and gray. Rain fell on the window.",
            ],
            &[
                "/\"Now I can not play,\" said {h}. {He} was sad.",
                "/\"Rain, rain, go away!\" said {h}.",
                "/{h} put the {toy} down and looked out of the window.",
            ],
            &[
                "\"We can have fun inside,\" said {his} {g}. \"I have an idea.\"",
                "Then {ff} came to the door with wet hair. \"Let us play inside!\" said {f}.",
                "{His} {g} said, \"Rain makes the flowers grow. Let us find something to do.\"",
            ],
            &[
                "They made a tent from [a blanket|two chairs and a sheet], and the {toy} was the king.",
                "They [drew pictures|sang songs|told stories], and the {toy} sat next to them.",
                "They played [hide and seek|a treasure hunt]. {h} hid the {toy} [under the bed|in a box|behind the door].",
            ],
            &[
                "/After some time, it was quiet. \"The rain has stopped!\" said {h}.",
                "/Then the sun came out. \"Look!\" said {h}. There was a rainbow in the sky.",
                "/Soon the clouds went away, and the sky was blue.",
            ],
            &[
                "{h} ran outside with the {toy} and jumped in [a puddle|all the puddles]. Splash!",
                "They went {to} at last and played with the {toy}.",
                "They went out to see the rainbow, and the {toy} came too.",
            ],
            &[
                "/\"This was a good day after all,\" said {h}.",
                "/{h} learned that a rainy day can be fun too.",
                "/\"I like the rain now,\" said {h}, and {his} {g} laughed.",
            ],
        ],
    },
    Plot {
        name: "seed",
        needs: Needs::Nothing,
        parts: &[
            &[
                "One {day}, {his} {g} gave {him} a small {plant} seed.",
                "One {day}, {h} found a little {plant} seed {at}.",
                "One {day}, {his} friend {ff} gave {him} a {plant} seed.",
            ],
            &[
                "{He} put it in the ground and gave it water.",
                "{He} planted it behind the house and gave it some water.",
                "\"Put it in the ground and wait,\" said {his} {g}. So {he} did.",
            ],
            &[
                "/The next day, {h} looked. There was nothing.",
                "/{h} looked every {daytime}, but nothing grew.",
                "/{h} waited one day. {He} waited two days. Nothing came.",
            ],
            &[
                "\"Why does it not grow?\" {he} asked.",
                "\"My seed is not working,\" {h} said. {He} was sad.",
                "\"Maybe it is sleeping,\" said {ff}.",
            ],
            &[
                "\"Good things take time,\" said {his} {g}.",
                "\"You must wait and give it water and love,\" said {his} {g}.",
                "{His} {g} smiled. \"Do not give up,\" {ghe} said.",
            ],
            &[
                "/So {h} gave it water every day and [sang to it|told it stories|kept the birds away].",
                "/{h} did not give up. The sun was warm, and the rain was soft.",
                "/Days went by. {h} took good care of the seed.",
            ],
            &[
                "Then one {daytime}, a tiny green leaf came up. It grew and grew until it was {grown}.",
                "One {daytime}, {he} saw something green. Soon it was {grown}!",
                "At last it grew into {grown}.",
            ],
            &[
                "/\"It worked! It worked!\" {h} shouted, and {he} danced around it.",
                "/\"Look what I grew!\" said {h}. {His} {g} was proud.",
                "/{h} learned to wait for good things.",
                "/{h} shared it with {his} {g} and all {his} friends.",
            ],
        ],
    },
    Plot {
        name: "build",
        needs: Needs::Nothing,
        parts: &[
            &[
                "One {day}, {he} wanted to build a {build} of {material}.",
                "{He} loved to build things. One {day}, {he} made a {build} of {material}.",
                "One {day}, {he} and {ff} wanted to build a {build}.",
            ],
            &[
                "{He} worked and worked. The {build} got bigger and bigger.",
                "It was hard work, but the {build} looked great.",
                "{He} used a lot of {material}, and soon the {build} was done.",
            ],
            &["/But then {crash}.", "/Suddenly, {crash}. Oh no!", "/\"Look at my {build}!\" {he} said. But just then, {crash}."],
            &[
                "{h} was angry. \"I will never build again!\" {he} said.",
                "{h} sat down and cried. \"All my work is gone,\" {he} said.",
                "\"It is not fair,\" said {h}, and {he} kicked a stone.",
            ],
            &[
                "/{Ff} came to see. \"Do not be sad,\" {fhe} said. \"We can build it again.\"",
                "/{His} {g} said, \"You can try again. This time, I will help you.\"",
                "/\"It was a good {build},\" said {ff}. \"Let us make a better one.\"",
            ],
            &[
                "{h} dried {his} eyes. \"Okay, let us try,\" {he} said.",
                "{h} stood up. \"One more time,\" {he} said.",
                "{h} thought for a moment. Then {he} smiled.",
            ],
            &[
                "/They got more {material} and started again. This time, the {build} was strong.",
                "/They worked together, and the new {build} was even bigger.",
                "/Together they were fast. The {build} was done before dinner.",
            ],
            &[
                "\"It is the best {build} in the world,\" said {h}.",
                "They sat next to the {build} and ate [some cookies|some apples|bread and cheese].",
                "{h} learned that you should never give up.",
                "{h} was glad that {he} tried again.",
            ],
        ],
    },
];
