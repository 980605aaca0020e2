//! Plots about friends: losing, sharing, breaking, racing, giving, meeting. In the language of `template.rs`; read by `grammar.rs`.

use super::{Needs, Plot};

/// These plots.
pub(super) const PLOTS: &[Plot] = &[
    Plot {
        name: "lost",
        needs: Needs::Toy,
        parts: &[
            &[
                "{He} had a~ {thing} that {he} [loved very much|took everywhere|got from {his} {g}].",
                "{His} favorite toy was a~ {thing} from {his} {g}.",
                "{He} played with {his} {thing} every day.",
                "For {his} birthday, {he} got a~ {thing} from {his} {g}.",
            ],
            &[
                "One {day}, {h} took the {toy} {to}.",
                "One {day}, {h} and {his} {g} went {to}, and the {toy} came too.",
                "One {day}, {he} went {to} with {his} {toy}.",
            ],
            &[
                "{He} put it down to look at a~ {pet}, and then it was gone.",
                "But when it was time to go home, the {toy} was gone.",
                "But after [lunch|a while|a nap], {he} could not find the {toy}.",
            ],
            &[
                "/\"Oh no! Where is my {toy}?\" {he} [cried|asked|said].",
                "/{h} was very sad. \"I lost my {toy},\" {he} said.",
                "/{h} [started|began] to cry. \"My {toy} is gone,\" {he} said.",
            ],
            &[
                "{He} looked {s1}, but it was not there.",
                "{He} looked {s1} and {s2}, but it was not there.",
                "{He} looked {s1}. No {toy}.",
                "{He} looked {s1} and found only [some leaves|an old shoe|a small stone].",
            ],
            &[
                "/Then {ff} came by. \"I will help you,\" {fhe} said.",
                "/\"What is wrong?\" asked {his} friend {ff}. \"Let us look together.\"",
                "/\"[Do not cry|Do not worry], {h},\" said {his} friend {ff}. \"We will find it.\"",
            ],
            &[
                "At last, {f} saw something {look} {s3}. It was the {toy}!",
                "Soon {f} called, \"Is this your {toy}?\" It was {s3}.",
                "They looked {s3}, and there was the {thing}!",
            ],
            &[
                "/{h} was so happy. {He} gave {f} a big hug and said, \"Thank you!\"",
                "/\"Thank you, {f}!\" said {h}. {He} [hugged|held] the {toy} [and smiled|tight].",
                "/\"You found it! You are a good friend,\" said {h}.",
            ],
            &[
                "Then they played with the {toy} until [the sun went down|it was time for dinner].",
                "From that day on, {h} always kept the {toy} close.",
                "After that, {h} and {f} were best friends.",
                "{h} learned that a friend can help when things go wrong.",
            ],
        ],
    },
    Plot {
        name: "stuck",
        needs: Needs::Flyer,
        parts: &[
            &[
                "One {day}, {h} went {to} with {his} {thing}.",
                "{He} had a~ {thing}. One {day}, {he} took it {to}.",
                "One {day}, {his} {g} gave {him} a~ {thing}. {h} ran {to} to play with it.",
            ],
            &[
                "Suddenly, a strong wind came. It took the {toy} up, up, up into a tall tree.",
                "{He} was having fun, but then the wind blew the {toy} onto a high roof.",
                "But the wind was strong, and the {toy} flew up into a big tree.",
            ],
            &[
                "/\"Oh no! My {toy} is stuck!\" {h} cried.",
                "/{h} looked up. \"How can I get my {toy} down?\" {he} asked.",
                "/{h} was sad. \"It is too high for me,\" {he} said.",
            ],
            &[
                "{He} jumped and jumped, but {he} could not reach it.",
                "{He} tried to climb, but {he} was too small.",
                "{He} threw a stick at it, but the stick fell back down.",
                "{He} waited for the wind, but the {toy} did not move.",
            ],
            &[
                "/{Ff} was walking by. \"I have an idea,\" {fhe} said. \"[I can bring a ladder|We can use a long stick|You can stand on my back].\"",
                "/Then {his} {g} came. \"Do not worry, {h},\" said {g2}. \"I will get a ladder.\"",
                "/{His} friend {ff} saw what happened. \"Let us work together,\" said {f}.",
            ],
            &[
                "They tried once. They tried again. [At last|Then] the {toy} came down.",
                "It was hard work, but soon the {toy} was back in {his} hands.",
                "Up they went, very slowly, and got the {toy} down.",
            ],
            &[
                "/\"Hooray!\" said {h}. \"Thank you for your help!\"",
                "/{h} was so happy that {he} [danced|jumped up and down|laughed]. \"Thank you!\" {he} said.",
                "/{h} smiled. \"I could not do it alone,\" {he} said.",
            ],
            &[
                "From that day on, {h} held the {toy} tight when it was windy.",
                "Then they all played {at} until [the sun went down|the stars came out].",
                "{h} learned that hard things are easy when you work together.",
                "They went home for [some soup|hot milk|warm bread], and the {toy} came too.",
            ],
        ],
    },
    Plot {
        name: "share",
        needs: Needs::Toy,
        parts: &[
            &[
                "{He} had a~ {thing}. It was the best toy {at}.",
                "One {day}, {his} {g} gave {him} a~ {thing}.",
                "{He} loved to play with {his} {thing}.",
            ],
            &[
                "One {day}, {he} played {at} with {his} friend {ff}. \"Can I play with your {toy}?\" {fhe} asked.",
                "One {day}, {ff} saw the {toy} {at} and said, \"That looks fun! Can I try it?\"",
                "{He} took it {to} and met {ff}. \"May I hold your {toy}?\" asked {f}.",
            ],
            &[
                "/\"No! It is mine,\" said {h}. {f} looked down and walked away.",
                "/{h} did not want to share. \"No,\" {he} said. {f} was sad.",
                "/\"No, you can not,\" said {h}. {f} [began to cry|sat down {s1}].",
            ],
            &[
                "{h} played alone, but it was not much fun.",
                "Soon {h} felt bad. Playing alone was not fun at all.",
                "{h} saw {f} {s1}. {f} looked so sad that {h} felt sad too.",
            ],
            &[
                "{His} {g} said, \"When you share, you have two happy hearts.\"",
                "\"{f} is your friend,\" said {his} {g}. \"Friends share.\"",
                "{He} thought about it. \"{f} always shares with me,\" {he} said.",
                "{He} asked {his} {g} what to do. \"Say sorry and share,\" said {g2}.",
            ],
            &[
                "/So {h} went to {f}. \"I am sorry,\" {he} said. \"We can play with the {toy} together.\"",
                "/{h} ran to {f} and gave {fhim} the {toy}. \"You can have a turn,\" {he} said.",
                "/\"I am sorry, {f},\" said {h}. \"Do you want to play with my {toy}?\"",
            ],
            &[
                "{f} smiled. \"Thank you, {h}!\" {fhe} said.",
                "\"Yes, I do!\" said {f} with a big smile.",
                "{f} was so happy that {fhe} [clapped|laughed|gave {h} a hug].",
            ],
            &[
                "/They played all day, and it was much more fun with two.",
                "/They took turns until the sun went down. {h} learned that sharing is fun.",
                "/After that, {h} always shared {his} {toy}.",
                "/And from that day on, they shared all their toys.",
            ],
        ],
    },
    Plot {
        name: "broken",
        needs: Needs::Toy,
        parts: &[
            &[
                "{His} friend {ff} had a~ {thing}. They often played {at}.",
                "One {day}, {ff} let {h} play with a~ {thing} {at}.",
                "{He} often played {at} with {ff}, who had a~ {thing}.",
            ],
            &[
                "{h} ran with it. Then {he} fell, and the {toy} broke.",
                "Crack! {h} dropped the {toy}, and it broke in two.",
                "One {day}, {h} dropped the {toy} on a stone, and it broke.",
            ],
            &[
                "/{h} was scared. \"What will {f} say?\" {he} thought.",
                "/{h} wanted to hide the {toy} {s1}. But that did not feel right.",
                "/\"Oh no,\" said {h}. {He} felt very bad.",
            ],
            &[
                "{He} told {his} {g} about it. \"Always tell the truth,\" said {g2}.",
                "{His} {g} said, \"It is brave to say sorry.\"",
                "\"I must tell the truth,\" {he} said to {himself}.",
            ],
            &[
                "/So {h} went to {f} and said, \"I broke your {toy}. I am very sorry.\"",
                "/{h} found {f} {s2}. \"I am sorry, I broke the {toy},\" {he} said.",
                "/\"{f}, I broke your {toy},\" said {h}. \"I am so sorry.\"",
            ],
            &[
                "{f} was sad, but {fhe} was not angry. \"Thank you for telling me,\" {fhe} said.",
                "\"It is okay,\" said {f}. \"We can fix it.\"",
                "\"You told the truth,\" said {f}. \"I am not angry.\"",
            ],
            &[
                "They [used some glue|used tape and string] and fixed the {toy} together.",
                "Together they found [glue|some tape|a nail] and made the {toy} [as good as new|whole again].",
            ],
            &[
                "/Soon the {toy} worked again, and they played until dinner.",
                "/{h} felt happy again. {He} learned that telling the truth is best.",
                "/\"Now it is even better,\" said {f}, and they both laughed.",
                "/From that day on, {h} was careful with other people's toys.",
            ],
        ],
    },
    Plot {
        name: "race",
        needs: Needs::Nothing,
        parts: &[
            &["{He} could run very fast.", "{He} loved to run and jump.", "More than anything, {he} wanted to win a race."],
            &[
                "One {day}, there was a big race {at}. {Ff} was in the race too.",
                "One {day}, {ff} said, \"Let us race {to}!\"",
                "One {day}, {he} met {ff} {at}. \"I am faster than you,\" said {f}.",
            ],
            &[
                "/\"One, two, three, go!\" called {his} {g}, and they ran.",
                "/\"Ready, set, go!\" they said. They ran as fast as the wind.",
                "/They stood side by side. Then the race began.",
            ],
            &[
                "{h} was in front. Then {he} heard a cry. {f} had fallen {s1}.",
                "{h} was ahead, but {f} fell down and hurt {fhis} knee.",
                "They ran past {place2}. Then {f} fell {s1} and could not get up.",
            ],
            &[
                "{h} could see the end of the race. But {he} thought of {his} friend.",
                "{h} stopped. Should {he} win, or should {he} help?",
                "\"I can win now,\" thought {h}. \"But {f} needs help.\"",
            ],
            &[
                "/{h} ran back. \"Are you okay?\" {he} asked. \"Take my hand.\"",
                "/So {h} went back and helped {f} get up.",
                "/\"Wait, I will help you!\" {h} called, and {he} went back.",
            ],
            &[
                "They walked to the end [hand in hand|together|side by side].",
                "Slowly, they went on together, and they came in last.",
                "Together they got to the end, and everyone clapped.",
            ],
            &[
                "/\"You did not win, but you are a true friend,\" said {f}.",
                "/{His} {g} gave them both a [gold star|shiny medal|piece of cake]. They were both very happy.",
                "/{h} learned that a friend is better than a prize.",
                "/\"Next time we will both win,\" said {h}, and they laughed.",
            ],
        ],
    },
    Plot {
        name: "gift",
        needs: Needs::Toy,
        parts: &[
            &[
                "It was the birthday of {his} friend {ff}.",
                "One {day}, {he} heard that {ff} was sick in bed.",
                "{His} best friend was {ff}. One {day}, {h} wanted to give {fhim} a gift.",
            ],
            &[
                "\"What can I give {fhim}?\" {h} asked {his} {g}.",
                "{h} had no money. \"What can I give {fhim}?\" {he} thought.",
                "{h} wanted to find something special for {f}.",
            ],
            &[
                "\"Make something with your own hands,\" said {his} {g}.",
                "\"Give something that you love,\" said {his} {g}.",
                "{He} went {to} and looked {s1} and {s2}, but {he} found nothing.",
            ],
            &[
                "/So {h} got [paper|wood|cloth] and paint and made a~ {thing}. It took all {daytime}.",
                "/Then {h} had an idea. {He} took {his} own {thing} and put it in a box.",
                "/{h} worked hard and made a~ {thing}. It was not perfect, but it was pretty.",
            ],
            &[
                "{He} put a ribbon on it and went to {f}.",
                "Then {he} took the {toy} to {f}.",
                "{He} ran to {f} with the {toy} behind {his} back.",
            ],
            &[
                "/\"This is for you,\" said {h}. {f} opened it. \"A {toy}!\" {fhe} cried.",
                "/\"Surprise!\" said {h}. {f} looked at the {toy} with big eyes.",
                "/\"I made you something,\" said {h}, and {he} gave {fhim} the {toy}.",
            ],
            &[
                "\"It is the best gift ever,\" said {f}.",
                "\"Thank you, {h}! I love it,\" said {f}.",
                "{f} was so happy that {fhe} gave {h} a big hug.",
            ],
            &[
                "/They ate some cake and played with the {toy} together.",
                "/{h} felt warm inside. Giving was even better than getting.",
                "/{f} kept the {toy} next to {fhis} bed from that day on.",
            ],
        ],
    },
    Plot {
        name: "lonely",
        needs: Needs::Toy,
        parts: &[
            &[
                "{He} was new in town and had no friends.",
                "{He} had no one to play with, and {he} felt alone.",
                "{He} had just moved to a new house, and everything was strange.",
            ],
            &[
                "One {day}, {he} sat alone {s1} with {his} {thing}.",
                "One {day}, {he} took {his} {thing} and went {to}.",
                "One {day}, {h} sat alone {at} and held {his} {thing}.",
            ],
            &[
                "/There was {ff}. {Fhe} looked at the {toy} and smiled.",
                "/\"Hello,\" said a voice. It was {ff}. \"What a nice {toy}!\"",
                "/{Ff} was there too, all alone.",
            ],
            &[
                "{h} wanted to say hello, but {he} was too shy.",
                "{h} did not know what to say. {His} face was red.",
                "\"Should I say hello?\" {h} thought. {He} was a little scared.",
            ],
            &[
                "{He} remembered what {his} {g} said. \"Just smile and say your name.\"",
                "{He} took a big breath and went closer.",
                "Then {he} had an idea. {He} held out {his} hand.",
            ],
            &[
                "/\"My name is {h},\" {he} said. \"Do you want to play?\"",
                "/\"Hi, I am {h},\" {he} said. \"Can we play with the {toy} together?\"",
                "/\"I am {h},\" {he} said in a small voice. \"Will you be my friend?\"",
            ],
            &[
                "\"Yes! I am {f},\" said {f}. \"I wanted a friend too.\"",
                "\"I would like that,\" said {f}. \"I am {f}.\"",
                "{f} nodded and smiled. \"I thought you would never ask,\" {fhe} said.",
            ],
            &[
                "/They played with the {toy} all {daytime} and [told funny stories|shared some cookies|ran around].",
                "/They played {at} until the stars came out. {h} was not alone now.",
                "/From that day on, {h} and {f} met every day.",
                "/\"I made a friend!\" {h} told {his} {g} that night.",
            ],
        ],
    },
];
